//! A report for machines, as JSON.
//!
//! The fields are those of [`Report`]; `schema` grows by one when a field changes its meaning or goes away.

use serde::Serialize;

use super::{Breach, Drift, Report, Row, Status};

/// The version of the shape of this JSON.
pub const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    status: Status,
    exit_code: u8,
    verdict: String,
    rows: Vec<Judged<'a>>,
    breaches: &'a [Breach],
    drift: &'a [Drift],
}

/// A row with the status that it alone would end a run with, so that a reader need not know the rules.
#[derive(Serialize)]
struct Judged<'a> {
    status: Status,
    #[serde(flatten)]
    row: &'a Row,
}

/// The whole report as indented JSON that ends with a newline.
///
/// # Errors
///
/// None is known: a report holds nothing that JSON cannot say. The serialiser's error is passed on all the same.
pub fn render(report: &Report) -> serde_json::Result<String> {
    let status = report.exit_code();
    let document = Document {
        schema: SCHEMA,
        status,
        exit_code: status.code(),
        verdict: report.verdict(),
        rows: report.rows.iter().map(|row| Judged { status: row.status(), row }).collect(),
        breaches: &report.breaches,
        drift: &report.drift,
    };
    serde_json::to_string_pretty(&document).map(|json| json + "\n")
}
