//! The journal's file: what is refused, and that it stays as it was then.

use lastword::delegation::OpenError;

use crate::scene::Folder;

#[tokio::test]
async fn a_second_service_on_a_journal_is_refused_and_told_who_has_it() {
    let folder = Folder::new();
    let (service, _, _) = folder.open();
    let Err(error) = folder.try_open(Default::default()) else { panic!("two have it open") };
    assert!(matches!(error, OpenError::InUse { holder, .. } if holder.0 == Some(std::process::id())), "{error}");
    service.close().await;
    folder.open().0.close().await;
}
