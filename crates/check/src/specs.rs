//! What stands under specs: the promises, the configurations, the mutants, the counterexamples, and whether they belong
//! together.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use lastword_core::Forced;
use lastword_model::{
    Configuration, Counterexample, Expectation,
    promises::{self, Named, Row},
};

use crate::{mutants::Mutant, subject::Subject};

/// The domains, in the order in which they are checked.
pub const DOMAINS: [&str; 4] = ["turns", "barrier", "guard", "delegation"];

/// Everything that stands under specs.
#[derive(Debug)]
pub struct Specs {
    /// The root of the repository.
    pub root: PathBuf,
    /// The rows of promises.toml.
    pub promises: Vec<Row>,
    /// The configurations of all domains.
    pub configurations: Vec<Configuration>,
    /// The mutants of all domains.
    pub mutants: Vec<Mutant>,
    /// The counterexamples, with their file names.
    pub counterexamples: Vec<(String, Counterexample)>,
    /// A sentence for each thing that does not belong together: a promise without its row, its predicate or its line, a
    /// configuration that does not check one, a guard without a mutant, a mutant without a file. Nothing is verified
    /// while there is one.
    pub strangers: Vec<String>,
}

/// Why specs cannot be used. Nothing is verified then.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SpecsError(String);

impl Specs {
    /// Reads everything.
    ///
    /// # Errors
    ///
    /// [`SpecsError`] where a file cannot be read or understood, or there is none of a kind.
    pub fn read(root: &Path) -> Result<Self, SpecsError> {
        let folder = root.join("specs");
        let text = |path: &Path| {
            fs::read_to_string(path)
                .map_err(|error| SpecsError(format!("{} could not be read: {error}", path.display())))
        };
        let said = |error: &dyn std::fmt::Display| SpecsError(error.to_string());
        let promises = promises::rows(&text(&folder.join("promises.toml"))?)
            .map_err(|error| SpecsError(format!("specs/promises.toml: {error}")))?;
        let mut configurations = Vec::new();
        let mut mutants = Vec::new();
        let mut missing = Vec::new();
        for domain in DOMAINS {
            let of_domain = Configuration::read_all(&folder, domain).map_err(|error| said(&error))?;
            let path = folder.join(domain).join("mutants.toml");
            mutants.extend(
                Mutant::read_all(domain, &text(&path)?)
                    .map_err(|error| SpecsError(format!("{}: {error}", path.display())))?,
            );
            let module = module_name(domain);
            let specification = text(&folder.join(domain).join(format!("{module}.tla")))?;
            let rows: Vec<&Row> = promises.iter().filter(|row| row.domain == domain).collect();
            missing.extend(strangers(&rows, &promises::named(domain), &specification, &module, &of_domain));
            configurations.extend(of_domain);
        }
        for row in promises.iter().filter(|row| !DOMAINS.contains(&row.domain.as_str())) {
            missing.push(format!("{}: there is no domain {}", row.name, row.domain));
        }
        let counterexamples = read_counterexamples(&folder.join("counterexamples"))?;
        missing.extend(crate::mutants::strangers(&mutants, &promises, &configurations, &counterexamples));
        Ok(Self { root: root.to_owned(), promises, configurations, mutants, counterexamples, strangers: missing })
    }

    /// The statement of a promise.
    #[must_use]
    pub fn statement(&self, promise: &str) -> &str {
        self.promises.iter().find(|row| row.name == promise).map_or("", |row| &row.statement)
    }

    /// A mutant by its name, with the configuration of its row.
    ///
    /// # Errors
    ///
    /// A sentence where there is no such mutant, or no such configuration.
    pub fn mutant(&self, name: &str) -> Result<(&Mutant, &Configuration), String> {
        let mutant = self.mutants.iter().find(|mutant| mutant.name == name);
        let mutant = mutant.ok_or_else(|| format!("there is no mutant {name}"))?;
        let id = mutant.configuration_id();
        let configuration = self.configuration(&id).ok_or_else(|| format!("there is no configuration {id}"))?;
        Ok((mutant, configuration))
    }

    /// The model of the configuration that a counterexample names. A mutant forces a guard.
    ///
    /// # Errors
    ///
    /// A sentence where there is no such configuration, or it is no model.
    pub fn model_of<M: Subject>(&self, counterexample: &Counterexample, forced: Option<Forced>) -> Result<M, String> {
        let id = format!("{}/{}", counterexample.domain, counterexample.configuration);
        let configuration = self.configuration(&id).ok_or_else(|| format!("there is no configuration {id}"))?;
        M::read(configuration, forced).map_err(|error| error.to_string())
    }

    /// The configuration with this `DOMAIN/NAME`.
    #[must_use]
    pub fn configuration(&self, id: &str) -> Option<&Configuration> {
        self.configurations.iter().find(|configuration| configuration.id() == id)
    }
}

/// The name of the specification of a domain: the folder's name with a capital letter.
#[must_use]
pub fn module_name(domain: &str) -> String {
    let mut letters = domain.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn read_counterexamples(folder: &Path) -> Result<Vec<(String, Counterexample)>, SpecsError> {
    let failed = |error: &dyn std::fmt::Display| SpecsError(format!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(&error))? {
        let path = entry.map_err(|error| failed(&error))?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(SpecsError(format!("{} holds no counterexample: nothing would be replayed", folder.display())));
    }
    files
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Counterexample::read(path)
                .map(|counterexample| (name, counterexample))
                .map_err(|error| SpecsError(error.to_string()))
        })
        .collect()
}

/// A sentence for each promise that lacks its row, its predicate, its line, or its place in a configuration.
fn strangers(
    rows: &[&Row],
    predicates: &[Named],
    specification: &str,
    module: &str,
    configurations: &[Configuration],
) -> Vec<String> {
    let rows: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    let defined: BTreeSet<&str> =
        specification.lines().filter_map(|line| line.split_once(" == ")).map(|(name, _)| name.trim_end()).collect();
    let mut missing = Vec::new();
    let known: BTreeSet<&str> = predicates.iter().map(|promise| promise.name).collect();
    for name in rows.union(&known) {
        if !rows.contains(name) {
            missing.push(format!("{name}: it has a predicate and no row in specs/promises.toml; add the row"));
        }
        if !known.contains(name) {
            missing.push(format!(
                "{name}: it has a row and no predicate in crates/model/src/promises.rs; add `fn` and its line in the table"
            ));
        }
        if !defined.contains(name) {
            missing.push(format!("{name}: {module}.tla has no line `{name} == ...`; add it under the promises"));
        }
    }
    let holding = || configurations.iter().filter(|configuration| configuration.expectation == Expectation::Holds);
    for promise in predicates {
        if promise.always {
            missing.extend(
                holding()
                    .filter(|configuration| !configuration.invariants.iter().any(|name| name == promise.name))
                    .map(|configuration| {
                        let (name, id) = (promise.name, configuration.id());
                        format!(
                            "{name}: specs/{id}.cfg must hold and does not check it; add the line `INVARIANT {name}`"
                        )
                    }),
            );
        } else if !configurations.is_empty()
            && !holding().any(|configuration| configuration.properties.iter().any(|name| name == promise.name))
        {
            // TLC takes minutes for liveness where the graph is large. There it is checked on the exact graph, which is the
            // same one.
            missing.push(format!(
                "{0}: no configuration that must hold has the line `PROPERTY {0}`; add it to a small one",
                promise.name
            ));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        Row { name: name.into(), statement: String::new(), domain: "turns".into(), keeper: String::new() }
    }

    #[test]
    fn a_promise_without_its_row_its_predicate_or_its_line_is_named() {
        let predicates = ["Both", "NoRow"].map(|name| Named { name, always: true });
        let rows = [row("Both"), row("NoPredicate")];
        let rows: Vec<&Row> = rows.iter().collect();
        let missing = strangers(&rows, &predicates, "Both == TRUE\nNoPredicate == TRUE\n", "Turns", &[]);
        assert_eq!(missing.len(), 3);
        assert!(missing[0].starts_with("NoPredicate: it has a row and no predicate"));
        assert!(missing[1].starts_with("NoRow: it has a predicate and no row"));
        assert!(missing[2].starts_with("NoRow: Turns.tla has no line"));
    }

    #[test]
    fn all_that_stands_under_specs_belongs_together() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let specs = Specs::read(&root).unwrap();
        assert_eq!(specs.strangers, Vec::<String>::new());
        assert!(!specs.statement("OlderPromptEnds").is_empty());
        assert!(specs.configuration("turns/overlapping-prompts").is_some());
    }
}
