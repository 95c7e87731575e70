//! A report for CI systems, as JUnit XML: a suite for each configuration, a case for each row.
//!
//! A broken promise and a drift are failures; what could not be verified is an error, also when that is everything. No
//! case is ever skipped: what was not checked is not verified.

use quick_junit::{NonSuccessKind, Report as Document, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::{Breach, Drift, Problem, Report, Row, Status, diagram, terminal};

/// The whole report as a JUnit document.
#[must_use]
pub fn document(report: &Report) -> Document {
    let mut document = Document::new("lastword");
    document.set_time(report.rows.iter().map(|row| row.time).sum());
    for (place, rows) in report.places() {
        let mut suite = TestSuite::new(place.as_str());
        suite.set_time(rows.iter().map(|row| row.time).sum());
        suite.add_test_cases(rows.into_iter().map(|row| case(row, &place, report)));
        document.add_test_suite(suite);
    }
    // Nothing that makes the run fail may be missing here only because it has no row.
    let mut rest = TestSuite::new("lastword");
    rest.add_test_cases(report.breaches_without_row().map(|breach| {
        let status =
            unsuccessful(Status::Broken, Problem::PromiseBroken.words(1), &breach.statement, Some(picture(breach)));
        TestCase::new(breach.name(), status)
    }));
    rest.add_test_cases(report.drift.iter().map(|drift| {
        let status =
            unsuccessful(Status::Drift, Problem::Drifted.words(1), &drift.kind.to_string(), Some(drift.change.clone()));
        TestCase::new(format!("{}{}", Drift::name(drift), drift.relied_on_by()), status)
    }));
    if report.rows.is_empty() {
        let status = unsuccessful(Status::Unverified, Problem::NotVerified.words(1), &report.verdict(), None);
        rest.add_test_case(TestCase::new("something was checked", status));
    }
    if rest.tests > 0 {
        document.add_test_suite(rest);
    }
    document
}

/// The whole report as JUnit XML.
///
/// # Errors
///
/// None is known: characters that XML cannot say are left out. The serialiser's error is passed on all the same.
pub fn render(report: &Report) -> Result<String, SerializeError> {
    document(report).to_string()
}

fn case(row: &Row, place: &str, report: &Report) -> TestCase {
    let status = match (row.problem(), row.sentence()) {
        (Some(problem), Some(sentence)) => {
            let same = |breach: &&Breach| breach.configuration == place && breach.promise == row.promise;
            let picture = report.breaches.iter().find(same).map(picture);
            unsuccessful(row.status(), problem.words(1), &sentence, picture)
        }
        _ => TestCaseStatus::success(),
    };
    let mut case = TestCase::new(format!("{} ({})", row.promise, row.layer), status);
    case.set_classname(place).set_time(row.time);
    case
}

fn unsuccessful(status: Status, kind: &str, message: &str, description: Option<String>) -> TestCaseStatus {
    let non_success = if status == Status::Unverified { NonSuccessKind::Error } else { NonSuccessKind::Failure };
    let mut status = TestCaseStatus::non_success(non_success);
    status.set_type(kind).set_message(message);
    if let Some(description) = description {
        status.set_description(description);
    }
    status
}

fn picture(breach: &Breach) -> String {
    anstream::adapter::strip_str(&diagram::breach(breach, terminal::WIDTH_DEFAULT)).to_string()
}
