//! Workers that are agents, each a child process.

use std::sync::Arc;

use lastword::delegation::{Launch, Life, Seat};

use crate::trials;

trials! {}

/// Workers that never do anything.
pub(crate) fn none() -> Arc<dyn Launch> {
    struct Idle;

    impl Launch for Idle {
        fn kinds(&self) -> Vec<String> {
            Vec::new()
        }

        fn launch(&self, seat: Seat) -> Life {
            Box::pin(async move {
                seat.stopped().await;
                "it was stopped".to_owned()
            })
        }
    }

    Arc::new(Idle)
}
