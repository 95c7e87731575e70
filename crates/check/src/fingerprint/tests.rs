//! Each test changes a small file and says what must and what must not be drift.

use std::collections::BTreeSet;
use std::process::Command;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const PATH: &str = "src/turns.rs";

const TURNS: &str = r#"//! Turns.
use std::collections::BTreeMap;

/// The limit.
pub const TURNS_MAX: usize = 2;

/// All turns.
pub struct Turns<T> {
    open: BTreeMap<u64, T>,
}

impl<T: Clone> Turns<T> {
    /// Opens a turn.
    pub fn open(&mut self, id: u64, turn: T) -> bool {
        tracing::debug!(id, "a turn opens");
        let is_new = self.open.len() < TURNS_MAX && id > 0;
        // Only now.
        self.open.insert(id, turn);
        is_new
    }

    pub fn close(&mut self, id: u64) -> Option<T> {
        self.open.remove(&id)
    }
}

impl<T> Drop for Turns<T> {
    fn drop(&mut self) {
        debug!("gone");
    }
}

mod inner {
    pub fn helper(a: u64) -> (u64,) {
        (a,)
    }
}

#[cfg(test)]
mod tests {
    fn spawn_them() {
        std::thread::spawn(|| ());
    }
}
"#;

/// A folder with one covered file.
struct Repository {
    folder: TempDir,
    coverage: Coverage,
}

impl Repository {
    fn new(text: &str, covered: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("src")).expect("a folder");
        let mut coverage = Coverage::default();
        coverage.add("covered.toml", covered).expect("a covered.toml that parses");
        let repository = Repository { folder, coverage };
        repository.write(text);
        repository
    }

    fn write(&self, text: &str) {
        fs::write(self.folder.path().join(PATH), text).expect("a file that is written");
    }

    fn scan(&self) -> Scan {
        scan(self.folder.path(), &self.coverage).expect("a scan")
    }

    fn recorded(&self) -> Fingerprint {
        Fingerprint { items: self.scan().facts(), ..Fingerprint::default() }
    }

    /// The drift of `text` from what the file holds now.
    fn drift_to(&self, text: &str) -> Vec<Drift> {
        let recorded = self.recorded();
        self.write(text);
        drift(&recorded, &self.scan(), self.folder.path())
    }

    fn git(&self, arguments: &[&str]) {
        let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"];
        let status = Command::new("git").arg("-C").arg(self.folder.path()).args(identity).args(arguments).status();
        assert!(status.expect("git runs").success(), "git {arguments:?}");
    }
}

fn every_item() -> Repository {
    Repository::new(TURNS, "[\"src/turns.rs\"]\n\"Turns::open\" = [\"Opened\"]\n\"*\" = [\"Returned\"]\n")
}

fn kinds(drift: &[Drift]) -> Vec<(&str, DriftKind)> {
    drift.iter().map(|drift| (drift.item.as_str(), drift.kind)).collect()
}

#[test]
fn every_item_that_is_no_test_has_a_name() {
    let facts = every_item().scan().facts();
    let names: Vec<&str> = facts.keys().map(|name| name.item.as_str()).collect();
    let expected = ["<Turns as Drop>::drop", "TURNS_MAX", "Turns", "Turns::close", "Turns::open", "inner::helper"];
    assert_eq!(names, expected);
}

#[test]
fn an_items_own_line_takes_the_place_of_the_star_in_its_domain_only() {
    let mut repository = every_item();
    let own = repository.scan().facts().remove(&ItemName { path: PATH.into(), item: "Turns::open".into() });
    assert_eq!(own.expect("the item").actions, BTreeSet::from(["Opened".to_owned()]));
    repository.coverage.add("other.toml", "[\"src/turns.rs\"]\n\"*\" = [\"Handled\"]\n").expect("it parses");
    let both = repository.scan().facts().remove(&ItemName { path: PATH.into(), item: "Turns::open".into() });
    assert_eq!(both.expect("the item").actions, BTreeSet::from(["Handled".to_owned(), "Opened".to_owned()]));
}

#[test]
fn comments_docs_log_lines_formatting_and_order_are_no_drift() {
    let same = [
        TURNS.replace("// Only now.", "/* Now, */ // and only now."),
        TURNS.replace("/// Opens a turn.", "/// Opens a turn, at last.\n    #[doc(alias = \"begin\")]"),
        TURNS.replace("tracing::debug!(id, \"a turn opens\");", ""),
        TURNS.replace("is_new\n", "trace!(\"x\");\n        info!(is_new)\n;is_new\n"),
        TURNS.replace("debug!(\"gone\");", "tracing::warn!(\"gone\")"),
        TURNS.replace("(&mut self, id: u64, turn: T)", "(\n&mut self,\nid: u64,\nturn: T,\n)"),
        TURNS.replace("(&id)", "(\n            &id,\n        )"),
        TURNS.replace("BTreeMap<u64, T>,", "BTreeMap<u64, T,>"),
        TURNS.replace("id > 0;", "id>0;"),
        TURNS
            .replace("pub const TURNS_MAX: usize = 2;\n", "")
            .replace("mod inner", "pub const TURNS_MAX: usize=2;\nmod inner"),
    ];
    for text in same {
        assert_ne!(text, TURNS);
        assert_eq!(every_item().drift_to(&text), [], "{text}");
    }
}

#[test]
fn a_changed_token_is_drift_of_its_item_and_of_no_other() {
    let changes = [
        ("self.open.len() < TURNS_MAX", "self.open.len() <= TURNS_MAX", "Turns::open"),
        ("< TURNS_MAX && id", "< TURNS_MAX || id", "Turns::open"),
        ("remove(&id)", "remove(& &id)", "Turns::close"),
        ("usize = 2", "usize = 3", "TURNS_MAX"),
        ("    open: BTree", "    #[cfg(unix)]\n    open: BTree", "Turns"),
        ("(a,)\n    }", "(a)\n    }", "inner::helper"),
    ];
    for (old, new, item) in changes {
        let drift = every_item().drift_to(&TURNS.replacen(old, new, 1));
        assert_eq!(kinds(&drift), [(item, DriftKind::Changed)], "{old} -> {new}");
    }
}

#[test]
fn the_header_of_an_impl_is_shape_of_each_of_its_methods() {
    let drift = every_item().drift_to(&TURNS.replace("T: Clone", "T: Copy"));
    assert_eq!(kinds(&drift), [("Turns::close", DriftKind::Changed), ("Turns::open", DriftKind::Changed)]);
}

#[test]
fn a_log_line_that_is_an_expression_is_the_unit_value() {
    let arm = |body: &str| format!("fn f(x: u8) {{ match x {{ 0 => {body}, _ => g() }} }}");
    let hash = |text: &str| shapes(text).expect("Rust")["f"].hash();
    assert_eq!(hash(&arm("error!(\"{x}\")")), hash(&arm("tracing::warn!(\"other\")")));
    assert_eq!(hash(&arm("error!(\"{x}\")")), hash(&arm("()")));
    assert_ne!(hash(&arm("error!(\"{x}\")")), hash(&arm("panic!(\"{x}\")")));
}

#[test]
fn braces_that_rustfmt_adds_for_a_comment_are_no_shape() {
    let hash = |body: &str| shapes(&format!("fn f() {{ {body} }}")).expect("Rust")["f"].hash();
    let same = [
        ("match x { A => g(), B => h(), }", "match x { A => { /* why */ g() } B => { info!(\"b\"); h() }, }"),
        ("match x { A => return, B => h(), }", "match x { A => { return; } B => h(), }"),
        ("x.map(|y| y + 1)", "x.map(|y| { /* why */ y + 1 })"),
        ("select! { a = b => { c(d) } }", "select! { a = b => { c(\nd,\n) } }"),
    ];
    for (one, other) in same {
        assert_eq!(hash(one), hash(other), "{one} and {other}");
    }
    let different = [
        ("match x { A => g(), _ => h() }", "match x { A => { g(); } _ => h() }"),
        ("x.map(|y| y + 1)", "x.map(|y| -> u8 { y + 1 })"),
        ("x.map(|y| y)", "x.map(|y| unsafe { y })"),
    ];
    for (one, other) in different {
        assert_ne!(hash(one), hash(other), "{one} and {other}");
    }
}

#[test]
fn new_and_gone_items_are_drift_and_name_their_actions() {
    let drift = every_item().drift_to(&TURNS.replace("pub fn close", "pub fn end"));
    assert_eq!(kinds(&drift), [("Turns::close", DriftKind::Gone), ("Turns::end", DriftKind::New)]);
    assert_eq!([&drift[0].actions, &drift[1].actions], [&["Returned"], &["Returned"]]);
    assert!(drift[1].change.contains("+    pub fn end(&mut self"), "{}", drift[1].change);
}

#[test]
fn a_change_of_the_actions_alone_is_drift_that_says_so() {
    let mut repository = every_item();
    let recorded = repository.recorded();
    repository.coverage = Coverage::default();
    repository.coverage.add("covered.toml", "[\"src/turns.rs\"]\n\"*\" = [\"Returned\"]\n").expect("it parses");
    let drift = drift(&recorded, &repository.scan(), repository.folder.path());
    assert_eq!(kinds(&drift), [("Turns::open", DriftKind::Changed)]);
    assert!(drift[0].change.contains("were [Opened] and are [Returned]"), "{}", drift[0].change);
}

#[test]
fn a_lock_spawn_or_select_that_no_line_covers_is_drift() {
    let repository = Repository::new(TURNS, "[\"src/turns.rs\"]\n\"Turns::open\" = [\"Opened\"]\n");
    let concurrent = [
        ("self.open.remove(&id)", "tokio::spawn(async {}); None", "spawn"),
        ("self.open.remove(&id)", "self.tasks.spawn_local(f()); None", "spawn_local"),
        ("self.open.remove(&id)", "self.shared.lock().remove(&id)", "lock"),
        ("self.open.remove(&id)", "tokio::select! { x = f() => x }", "select"),
    ];
    for (old, new, word) in concurrent {
        repository.write(TURNS);
        let drift = repository.drift_to(&TURNS.replace(old, new));
        assert_eq!(kinds(&drift), [("Turns::close", DriftKind::Uncovered)], "{new}");
        assert!(drift[0].change.contains(&format!("`{word}`")) && drift[0].change.contains(new), "{}", drift[0].change);
    }
    // A covered one is the business of its line, and a word that only looks alike is nobody's.
    repository.write(TURNS);
    let words = "let lock = self.select; unlock(lock); self.block(); None";
    assert_eq!(repository.drift_to(&TURNS.replace("self.open.remove(&id)", words)), []);
}

#[test]
fn the_diff_shows_the_recorded_line_from_git_and_the_line_now() {
    let repository = every_item();
    repository.git(&["init", "-q"]);
    repository.git(&["add", "."]);
    repository.git(&["commit", "-q", "-m", "Record"]);
    let recorded = repository.recorded();
    // Two commits later the recorded text is only in the history.
    for operator in ["<=", "=="] {
        repository.write(&TURNS.replace("len() <", &format!("len() {operator}")));
        repository.git(&["commit", "-q", "-a", "-m", "Change"]);
    }
    let drift = drift(&recorded, &repository.scan(), repository.folder.path());
    assert_eq!(kinds(&drift), [("Turns::open", DriftKind::Changed)]);
    let changed: Vec<&str> = drift[0].change.lines().filter(|line| line.starts_with(['+', '-'])).collect();
    assert_eq!(
        changed,
        [
            "--- recorded src/turns.rs Turns::open",
            "+++ now src/turns.rs Turns::open",
            "-        let is_new = self.open.len() < TURNS_MAX && id > 0;",
            "+        let is_new = self.open.len() == TURNS_MAX && id > 0;",
        ]
    );
}

#[test]
fn without_git_the_change_is_both_hashes() {
    let repository = every_item();
    let name = ItemName { path: PATH.into(), item: "TURNS_MAX".into() };
    let old = repository.scan().facts()[&name].hash.clone();
    let drift = repository.drift_to(&TURNS.replace("usize = 2", "usize = 3"));
    let new = &repository.scan().facts()[&name].hash;
    assert!(drift[0].change.contains(&old) && drift[0].change.contains(new), "{}", drift[0].change);
}

#[test]
fn what_could_not_be_scanned_is_an_error_and_no_drift() {
    let error = |text: &str, covered: &str| {
        let repository = Repository::new(text, covered);
        scan(repository.folder.path(), &repository.coverage).expect_err("an error").to_string()
    };
    let missing_item = error(TURNS, "[\"src/turns.rs\"]\n\"Turns::shut\" = []\n");
    assert!(missing_item.contains("src/turns.rs") && missing_item.contains("`Turns::shut`"), "{missing_item}");
    let missing_file = error(TURNS, "[\"src/gone.rs\"]\n\"*\" = []\n");
    assert!(missing_file.contains("could not read src/gone.rs"), "{missing_file}");
    let not_rust = error("fn f() {}\nfn {", "[\"src/turns.rs\"]\n\"*\" = []\n");
    assert!(not_rust.contains("src/turns.rs:2 does not parse"), "{not_rust}");
}

#[test]
fn coverage_is_read_from_every_domain_and_must_not_be_empty() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let specs = folder.path().join("specs");
    assert!(matches!(Coverage::read(folder.path()), Err(FingerprintError::Unreadable { .. })));
    fs::create_dir_all(specs.join("turns")).expect("a folder");
    assert!(matches!(Coverage::read(folder.path()), Err(FingerprintError::NothingCovered)));
    fs::write(specs.join("turns/covered.toml"), "[\"src/a.rs\"]\n\"f\" = [\"A\"]\n").expect("a file");
    fs::create_dir(specs.join("barrier")).expect("a folder");
    fs::write(specs.join("barrier/covered.toml"), "[\"src/b.rs\"]\n\"*\" = [\"B\"]\n").expect("a file");
    let coverage = Coverage::read(folder.path()).expect("coverage");
    assert_eq!(coverage.paths(), BTreeSet::from(["src/a.rs", "src/b.rs"]));
    fs::write(specs.join("barrier/covered.toml"), "[\"src/b.rs\"]\n\"*\" = [\"B,C\"]\n").expect("a file");
    let error = Coverage::read(folder.path()).expect_err("an error").to_string();
    assert!(error.starts_with("specs/barrier/covered.toml is malformed: `B,C`"), "{error}");
}

#[test]
fn a_bad_record_names_its_line() {
    let bad = [
        ("item src/a.rs f", "a `item` line has other fields"),
        ("item src/a.rs f A xyz", "`xyz` is no hash"),
        ("graph turns/x states=1 edges=b digest=00", "`b` is no number of edges"),
        ("graph turns/x states=1 digest=00 edges=2", "`digest=00` is not edges=VALUE"),
        ("tlc turns/x verdict=holds states=1 edges=2 graph=-", "a `tlc` line has other fields"),
        ("files a 1\nfiles a 2", "\"a\" is recorded twice"),
        ("what is this", "it begins with none of"),
    ];
    for (text, reason) in bad {
        let error = format!("# header\n\n{text}").parse::<Fingerprint>().expect_err(text).to_string();
        let line = 2 + text.lines().count();
        assert!(error.contains(&format!("line {line}: {reason}")), "{error}");
    }
}

/// Lexemes of an item, so that anything may stand between two of them.
const LEXEMES: &str = r##"pub fn f < 'a , T : ? Sized > ( x : & 'a [ u8 ] , y : Vec < Vec < T > > ) -> Result < ( u8 , ) , E >
    where T : Clone { let z = x . len ( ) << 2 ; if z >= 1 && ! y . is_empty ( ) || z == - 1 { return Err ( E :: new
    ( "a//b" , 'c' , r#"d"# ) ) ; } match z { 0 ..= 9 => a & & b , _ => { c -= 1 ; } } select ! { v = g ( ) => h ( v ) }
    Ok ( ( 7 , ) ) }"##;

fn between() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(" ".to_owned()),
        Just("\n\t".to_owned()),
        "[a-z(){}\"'!;]{0,8}".prop_map(|text| format!(" // {text}\n")),
        "[a-z(){}\"'!;]{0,8}".prop_map(|text| format!(" /* {text} */ ")),
    ]
}

fn word() -> impl Strategy<Value = String> {
    "[A-Za-z][A-Za-z0-9_/]{0,6}"
}

fn hash() -> impl Strategy<Value = String> {
    "[0-9a-f]{16}"
}

prop_compose! {
    fn fingerprint()(
        items in prop::collection::btree_map(
            (word(), "[A-Za-z<][A-Za-z:<>&]{0,6}( as [A-Z]>::[a-z]+)?"),
            (prop::collection::btree_set(word(), 0..3), hash()),
            0..4,
        ),
        graphs in prop::collection::btree_map(
            word(),
            (any::<u64>(), any::<u64>(), hash(), prop::collection::btree_map(word(), any::<u64>(), 0..3)),
            0..3,
        ),
        tlc in prop::collection::btree_map(
            word(),
            ("holds|breaks:[A-Z][a-z]+:[1-9]", any::<u64>(), any::<u64>(), prop::option::of(hash()), hash()),
            0..3,
        ),
        files in prop::collection::btree_map(word(), any::<u64>(), 0..2),
    ) -> Fingerprint {
        Fingerprint {
            items: items
                .into_iter()
                .map(|((path, item), (actions, hash))| (ItemName { path, item }, ItemFact { actions, hash }))
                .collect(),
            graphs: graphs
                .into_iter()
                .map(|(name, (states, edges, digest, steps))| (name, GraphFact { states, edges, digest, steps }))
                .collect(),
            tlc: tlc
                .into_iter()
                .map(|(name, (verdict, states, edges, graph, input))| {
                    (name, TlcFact { verdict, states, edges, graph, input })
                })
                .collect(),
            files,
        }
    }
}

proptest! {
    #[test]
    fn what_stands_between_two_tokens_is_no_shape(gaps in prop::collection::vec(between(), 200)) {
        let text: String = LEXEMES.split_whitespace().zip(&gaps).map(|(lexeme, gap)| format!("{lexeme}{gap}")).collect();
        prop_assert_eq!(shapes(&text).expect("Rust")["f"].hash(), shapes(LEXEMES).expect("Rust")["f"].hash());
    }

    #[test]
    fn another_word_anywhere_moves_the_hash_of_its_item_and_of_no_other(item in 0..6_usize, at in any::<prop::sample::Index>()) {
        let items: Vec<String> = (0..6).map(|n| format!("fn f{n}() {{ if a{n} {{ b{n}(c{n}, d{n}); e{n} }} else {{ x{n}! [y{n}] }} }}")).collect();
        let before = shapes(&items.join("\n")).expect("Rust");
        let words = ["a", "b", "c", "d", "e", "x", "y"];
        let word = format!("{}{item}", words[at.index(words.len())]);
        let mut changed = items.clone();
        changed[item] = changed[item].replace(&word, "other");
        let after = shapes(&changed.join("\n")).expect("Rust");
        for n in 0..6 {
            let name = format!("f{n}");
            prop_assert_eq!(before[&name].hash() == after[&name].hash(), n != item);
        }
    }

    #[test]
    fn a_fingerprint_that_is_written_is_read_back(fingerprint in fingerprint()) {
        let text = fingerprint.to_string();
        prop_assert_eq!(text.parse::<Fingerprint>().expect("what was written parses"), fingerprint);
    }
}
