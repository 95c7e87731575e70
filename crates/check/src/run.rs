//! A whole run: facts, configurations, mutants, replays, fingerprint, in the order of the table.

use std::{collections::BTreeMap, fs, path::Path, sync::Mutex, time::Instant};

use lastword_core::Limits;
use lastword_model::{Configuration, ConnectionModel, Counterexample, DelegationModel, Expectation};

use crate::{
    domain::{self, Checked, Setting},
    facts::{self, Facts},
    fingerprint::{self, Coverage, Fingerprint, Scan},
    mutants::{self, Change, Kill, Mutant},
    replay::{self, Stage, Verdict},
    report::{Expected, Found, Layer, Report, Row, Status, progress::Progress},
    specs::{DOMAINS, Specs},
    subject::is_of_delegation,
    table,
    tlc::Tlc,
};

/// The recorded facts, at the root of the repository.
const FINGERPRINT: &str = "fingerprint.txt";

/// What the last blind audit found.
const SURVIVORS: &str = "specs/survivors.txt";

/// The folder whose number of files is recorded.
const COUNTEREXAMPLES: &str = "specs/counterexamples";

/// What a run is asked for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Only this domain or `DOMAIN/CONFIGURATION`.
    pub only: Option<String>,
    /// Try every mutant as well.
    pub mutants: bool,
    /// Run TLC also where its result is recorded.
    pub no_cache: bool,
    /// A missing TLC is an error.
    pub require_tlc: bool,
    /// Record what was found, if every promise held.
    pub accept: bool,
}

/// Runs what is asked for.
#[must_use]
pub fn run(specs: &Specs, wanted: &Wanted) -> Report {
    let mut report = Report::default();
    let recorded = read_fingerprint(&specs.root);
    let known = recorded.as_ref().cloned().unwrap_or_default();
    let progress = Progress::default();
    let tlc = Tlc::find(&specs.root);
    let measured = measure(specs, &mut report);

    let setting = Setting {
        specs,
        facts: &measured,
        tlc: &tlc,
        recorded: &known,
        no_cache: wanted.no_cache,
        require_tlc: wanted.require_tlc,
        progress: &progress,
    };
    let configurations: Vec<&Configuration> =
        specs.configurations.iter().filter(|configuration| is_wanted(&configuration.id(), wanted)).collect();
    let checked = check_all(&setting, &configurations);
    let mut now = Fingerprint::default();
    for (configuration, checked) in configurations.iter().zip(checked) {
        report.rows.extend(checked.rows);
        report.breaches.extend(checked.breaches);
        now.graphs.extend(checked.graph.map(|graph| (configuration.id(), graph)));
        now.tlc.extend(checked.tlc.map(|fact| (configuration.id(), fact)));
    }
    for (file, counterexample) in &specs.counterexamples {
        if is_wanted(&format!("{}/{}", counterexample.domain, counterexample.configuration), wanted) {
            report.rows.extend(replay_file(specs, file, counterexample));
        }
    }
    if is_wanted("delegation/", wanted) {
        let started = Instant::now();
        let found = table::check(&specs.root).map_or_else(Found::Drifted, |()| Found::Holds);
        report.rows.push(row("delegation", Layer::Fingerprint, "the table of states by steps", found, started));
    }
    if wanted.mutants {
        try_mutants(specs, &now, wanted, &progress, &mut report);
        read_survivors(specs, &mut report);
    }
    if wanted.only.is_none() {
        compare_with_record(specs, recorded, now, wanted, &mut report);
    }
    report
}

fn is_wanted(id: &str, wanted: &Wanted) -> bool {
    wanted
        .only
        .as_ref()
        .is_none_or(|only| id == only || id.strip_prefix(only.as_str()).is_some_and(|rest| rest.starts_with('/')))
}

/// The rows of things that belong to a whole domain.
fn row(domain: &str, layer: Layer, promise: &str, found: Found, started: Instant) -> Row {
    Row {
        domain: domain.to_owned(),
        configuration: String::new(),
        layer,
        promise: promise.to_owned(),
        expected: Expected::Holds,
        found,
        states: None,
        edges: None,
        time: started.elapsed(),
    }
}

/// Measures the facts; each must be what the configurations that must hold say.
fn measure(specs: &Specs, report: &mut Report) -> Facts {
    let mut all = Facts::new();
    for domain in DOMAINS {
        let mut measured = BTreeMap::new();
        let names = facts::of_domain(domain);
        for fact in names.iter().copied() {
            let started = Instant::now();
            let found = match facts::measure(domain, fact, Limits::default()) {
                Err(error) => Found::NotVerified(error.to_string()),
                Ok(value) => {
                    let other = specs.configurations.iter().find(|configuration| {
                        configuration.domain == domain
                            && configuration.expectation == Expectation::Holds
                            && configuration.constants.get(fact) != Some(&value)
                    });
                    let found = match other {
                        None => Found::Holds,
                        Some(other) => Found::Differs(format!(
                            "the runtime shows {fact} = {value}, and {} says otherwise",
                            other.id()
                        )),
                    };
                    measured.insert(fact.to_owned(), value);
                    found
                }
            };
            let name = measured.get(fact).map_or(fact.to_owned(), |value| format!("{fact} = {value}"));
            report.rows.push(row(domain, Layer::Fact, &name, found, started));
        }
        if measured.len() == names.len() {
            all.insert(domain, measured);
        }
    }
    all
}

/// Checks the configurations, as many at a time as there are processors, and gives the results in their order.
fn check_all(setting: &Setting<'_>, configurations: &[&Configuration]) -> Vec<Checked> {
    let next = Mutex::new(0..configurations.len());
    let results: Vec<Mutex<Option<Checked>>> = configurations.iter().map(|_| Mutex::new(None)).collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(at) = next.lock().ok().and_then(|mut next| next.next()) {
                    let checked = domain::check(setting, configurations[at]);
                    if let Ok(mut result) = results[at].lock() {
                        *result = Some(checked);
                    }
                }
            });
        }
    });
    results.into_iter().map(|result| result.into_inner().ok().flatten().unwrap_or_default()).collect()
}

/// Replays a file on the model and on the runtime, where it must be green, and under its mutant, where it must be red. A
/// mutant that is a patch needs a build of its own and is tried by `--mutants`.
#[must_use]
pub fn replay_file(specs: &Specs, file: &str, counterexample: &Counterexample) -> Vec<Row> {
    let started = Instant::now();
    let row = |promise: String, found, started: Instant| Row {
        configuration: counterexample.configuration.clone(),
        ..row(&counterexample.domain, Layer::Replay, &promise, found, started)
    };
    // In the table the domain and the ending go without saying.
    let prefix = format!("{}-", counterexample.domain);
    let file = file.strip_suffix(".json").unwrap_or(file);
    let file = file.strip_prefix(&prefix).unwrap_or(file);
    let found = match replay_green(specs, counterexample) {
        Ok(Verdict::Kept) => Found::Holds,
        Ok(Verdict::Broken { promise, step }) => Found::Differs(format!("{promise} breaks at step {step}")),
        Ok(Verdict::Differs(what)) => Found::Differs(what),
        Err(why) => Found::NotVerified(why),
    };
    let is_verified = !matches!(found, Found::NotVerified(_));
    let mut rows = vec![row(file.to_owned(), found, started)];
    let mutant = specs.mutants.iter().find(|mutant| mutant.name == counterexample.mutant);
    let id = format!("{}/{}", counterexample.domain, counterexample.configuration);
    if let (Some(forced), Some(configuration), true) =
        (mutant.and_then(Mutant::forced), specs.configuration(&id), is_verified)
    {
        let started = Instant::now();
        let found = match mutants::replay_under(counterexample, configuration, Some(forced)) {
            Ok(Verdict::Broken { promise, .. }) if promise == counterexample.promise => Found::Holds,
            Ok(Verdict::Broken { promise, step }) => Found::Differs(format!(
                "under its mutant {promise} breaks at step {step}, and not {}",
                counterexample.promise
            )),
            Ok(Verdict::Kept) => {
                Found::Differs(format!("it is green although its mutant {} is there", counterexample.mutant))
            }
            Ok(Verdict::Differs(what)) => Found::Differs(format!("under its mutant, {what}")),
            Err(why) => Found::NotVerified(why),
        };
        rows.push(row(format!("{file}, red under its mutant"), found, started));
    }
    rows
}

/// Replays a file on the real code: on the model, and then on the runtime.
fn replay_green(specs: &Specs, counterexample: &Counterexample) -> Result<Verdict, String> {
    let on = |green: &dyn Fn(Stage) -> Verdict| match green(Stage::Model) {
        Verdict::Kept => green(Stage::Runtime),
        broken => broken,
    };
    if is_of_delegation(&counterexample.domain) {
        let model: DelegationModel = specs.model_of(counterexample, None)?;
        let is_patched = mutants::is_patched();
        return Ok(on(&|stage| replay::delegation::replay(counterexample, &model, is_patched, stage, |_| {})));
    }
    let model: ConnectionModel = specs.model_of(counterexample, None)?;
    Ok(on(&|stage| replay::replay(counterexample, &model, Limits::default(), stage, |_| {})))
}

fn try_mutants(specs: &Specs, now: &Fingerprint, wanted: &Wanted, progress: &Progress, report: &mut Report) {
    for mutant in specs.mutants.iter().filter(|mutant| is_wanted(&mutant.configuration_id(), wanted)) {
        let started = Instant::now();
        let bar = progress.start(format!("mutant {}", mutant.name));
        bar.set(0);
        let id = mutant.configuration_id();
        // The graph of the unchanged code has been found equal to that of the specification in this very run, or its row
        // says that it is not.
        let digest = now.graphs.get(&id).map(|graph| graph.digest.as_str());
        let kill = match (digest, specs.configuration(&id)) {
            (Some(digest), Some(configuration)) => match &mutant.change {
                Change::Guard(_) => {
                    mutants::try_here(mutant, configuration, digest, &specs.counterexamples, &specs.configurations)
                }
                Change::Patch(patch) => mutants::try_patched(mutant, patch, &specs.root, digest),
            },
            _ => Err(format!("{id} was not explored in this run")),
        };
        drop(bar);
        let expected = Expected::Breaks { steps: mutant.steps };
        let found = match &kill {
            Err(why) => Found::NotVerified(why.clone()),
            Ok(kill) => mutant_found(kill),
        };
        report.rows.push(Row {
            configuration: mutant.configuration.clone(),
            expected,
            ..row(&mutant.domain, Layer::Mutant, &format!("{} kills {}", mutant.kills, mutant.name), found, started)
        });
        report.kills.extend(kill.ok());
    }
}

/// What the last blind audit found. It takes too long for every run, so that its result is kept beside the promises.
fn read_survivors(specs: &Specs, report: &mut Report) {
    let started = Instant::now();
    let found = match fs::read_to_string(specs.root.join(SURVIVORS)) {
        Ok(text) if !text.trim().is_empty() => {
            report.survivors = text.lines().map(str::to_owned).collect();
            Found::Holds
        }
        Ok(_) => Found::NotVerified(format!("{SURVIVORS} is empty; scripts/blind-audit says what belongs there")),
        Err(error) => Found::NotVerified(format!("{SURVIVORS} could not be read: {error}; run scripts/blind-audit")),
    };
    report.rows.push(row("all", Layer::Mutant, "blind audit is recorded", found, started));
}

/// A mutant is killed where the promise of its row breaks on the exact graph, and each of its files is red. (The
/// specification need not differ: what the machine remembers and nothing looks at is no variable of it.)
fn mutant_found(kill: &Kill) -> Found {
    let green: Vec<&str> = kill.green_files().collect();
    match kill.steps() {
        None => Found::Holds,
        Some(_) if !green.is_empty() => Found::Differs(format!("it lives through the replay of {}", green.join(", "))),
        Some(steps) => Found::Breaks { steps },
    }
}

fn read_fingerprint(root: &Path) -> Result<Fingerprint, String> {
    let text = fs::read_to_string(root.join(FINGERPRINT))
        .map_err(|error| format!("{FINGERPRINT} could not be read: {error}; `./check.sh --accept` writes it"))?;
    text.parse().map_err(|error| format!("{FINGERPRINT}: {error}"))
}

/// The shape of the covered code, the behaviour, and the number of counterexamples, against what is recorded.
fn compare_with_record(
    specs: &Specs,
    recorded: Result<Fingerprint, String>,
    mut now: Fingerprint,
    wanted: &Wanted,
    report: &mut Report,
) {
    let started = Instant::now();
    let scan = Coverage::read(&specs.root).and_then(|coverage| fingerprint::scan(&specs.root, &coverage));
    let scan = match scan {
        Ok(scan) => scan,
        Err(error) => {
            let found = Found::NotVerified(error.to_string());
            return report.rows.push(row("all", Layer::Fingerprint, "shape of the covered code", found, started));
        }
    };
    now.items = scan.facts();
    now.files.insert(COUNTEREXAMPLES.to_owned(), specs.counterexamples.len() as u64);
    if wanted.accept {
        return accept(specs, &scan, &now, started, report);
    }
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(why) => {
            return report.rows.push(row(
                "all",
                Layer::Fingerprint,
                "shape of the covered code",
                Found::NotVerified(why),
                started,
            ));
        }
    };
    report.drift = fingerprint::drift(&recorded, &scan, &specs.root);
    let moved: Vec<&str> = now
        .graphs
        .iter()
        .filter(|(id, graph)| recorded.graphs.get(*id) != Some(*graph))
        .map(|(id, _)| id.as_str())
        .collect();
    let behaviour = if moved.is_empty() {
        "the behaviour is unchanged: every graph is the recorded one".to_owned()
    } else {
        format!("the behaviour moved in {}", moved.join(", "))
    };
    let found = match report.drift.len() {
        0 => Found::Holds,
        1 => Found::Drifted(format!("1 item; {behaviour}")),
        items => Found::Drifted(format!("{items} items; {behaviour}")),
    };
    report.rows.push(row("all", Layer::Fingerprint, "shape of the covered code", found, started));
    let found = if moved.is_empty() { Found::Holds } else { Found::Drifted(behaviour) };
    report.rows.push(row("all", Layer::Fingerprint, "behaviour of the code", found, started));
    let stale: Vec<&str> =
        now.tlc.iter().filter(|(id, fact)| recorded.tlc.get(*id) != Some(*fact)).map(|(id, _)| id.as_str()).collect();
    let gone = recorded.graphs.keys().chain(recorded.tlc.keys()).filter(|id| specs.configuration(id).is_none()).count();
    let found = match (stale.len(), gone) {
        (0, 0) => Found::Holds,
        (0, gone) => Found::Drifted(format!("{gone} recorded configurations are no longer there")),
        _ => Found::Drifted(format!("what TLC found is not recorded for {}", stale.join(", "))),
    };
    report.rows.push(row("all", Layer::Fingerprint, "records of TLC", found, started));
    let found = match recorded.files.get(COUNTEREXAMPLES) {
        Some(count) if *count == specs.counterexamples.len() as u64 => Found::Holds,
        Some(count) => Found::Drifted(format!("{} files, and {count} are recorded", specs.counterexamples.len())),
        None => Found::Drifted("their number is not recorded".to_owned()),
    };
    report.rows.push(row("all", Layer::Fingerprint, "number of counterexamples", found, started));
}

/// Records what was found, and only where every promise held and everything could be verified.
fn accept(specs: &Specs, scan: &Scan, now: &Fingerprint, started: Instant, report: &mut Report) {
    // What no line covers cannot be accepted: it needs a line.
    report.drift = fingerprint::drift(now, scan, &specs.root);
    let found = match report.exit_code() {
        Status::Kept => match write(&specs.root.join(FINGERPRINT), &now.to_string()) {
            Ok(()) => Found::Holds,
            Err(error) => Found::NotVerified(format!("{FINGERPRINT} could not be written: {error}")),
        },
        _ => Found::NotVerified(format!("{FINGERPRINT} was not written: it records only what holds")),
    };
    report.rows.push(row("all", Layer::Fingerprint, "recorded in fingerprint.txt", found, started));
}

/// Writes a file as a whole or not at all.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.persist(path)?;
    Ok(())
}
