//! A recorded round is played again, and judged again.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;

use crate::{EVER_MS, PATIENCE_MS, Results, code, conform, measured, peer, reference};

/// The transcript of the first broken round of this scenario.
fn recorded(options: &[&str], peer: &[String], scenario: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broken");
    let more = ["--rounds", "1", "--patience-ms", PATIENCE_MS, "--only", scenario, "--transcripts"];
    let output = conform(&[options, &more, &[path.to_str().unwrap()]].concat(), peer).output().unwrap();
    assert_eq!(code(&output), 1, "{output:?}");
    let files: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, [format!("{scenario}-1.ndjson").as_str()]);
    let file = path.join(&files[0]).display().to_string();
    (folder, file)
}

fn replayed(file: &str, patience: &str, options: &[&str], peer: &[String]) -> Results {
    measured(&[options, &["--patience-ms", patience, "--replay", file]].concat(), peer)
}

fn lines(file: &str) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_broken_round_breaks_again_and_a_right_agent_keeps_it() {
    for (bug, scenario, promise) in [
        ("ignores-cancel", "prompt-cancel", "CancelReachesEarlierPrompts"),
        ("ignores-cancel", "prompt-prompt-b-cancel", "CancelReachesEarlierPrompts"),
        ("drops-older", "prompt-prompt", "OlderPromptEnds"),
        ("dies-at-garbage", "not-utf-8", "AnsweredOnce"),
        ("says-error", "prompt-end", "CancelledIsSaid"),
    ] {
        let wrong = peer("agent.py", bug);
        let (_folder, file) = recorded(&[], &wrong, scenario);
        let again = replayed(&file, PATIENCE_MS, &[], &wrong);
        assert!(again.with("broken").contains(&(promise, scenario)) && again.code == 1, "{:#}", again.json);
        for right in [reference(), peer("agent.py", "none")] {
            let right = replayed(&file, EVER_MS, &[], &right);
            assert_eq!((right.code, right.with("kept").len()), (0, right.rows().len()), "{:#}", right.json);
        }
    }
}

#[test]
fn a_round_of_a_client_is_played_again_too() {
    let options = ["--client", "--echoes", "--cancels"];
    let wrong = peer("client.py", "returns-late");
    let (_folder, file) = recorded(&options, &wrong, "response-update");
    assert_eq!(replayed(&file, PATIENCE_MS, &options, &wrong).code, 1);
    let right = replayed(&file, EVER_MS, &options, &peer("client.py", "none"));
    assert_eq!((right.code, right.with("kept").len()), (0, 1), "{:#}", right.json);
}

#[test]
fn what_is_played_again_has_the_recorded_ids_in_the_recorded_order() {
    let wrong = peer("agent.py", "ignores-cancel");
    let (folder, file) = recorded(&[], &wrong, "prompt-prompt-cancel");
    let again = folder.path().join("again");
    let options = ["--patience-ms", PATIENCE_MS, "--transcripts", again.to_str().unwrap(), "--replay", &file];
    assert_eq!(measured(&options, &wrong).code, 1);
    // Only the names of sessions may be others.
    let played = |path: &Path| -> Vec<String> {
        let lines = lines(path.to_str().unwrap());
        let played = lines.iter().filter(|line| line["from"] == "lastword" && line["phase"] == "play");
        let text = |line: &Value| line["text"].as_str().unwrap().replace("\"s1\"", "\"s0\"");
        played.map(text).collect()
    };
    let first = played(Path::new(&file));
    assert_eq!(first.len(), 3);
    assert_eq!(played(&again.join("prompt-prompt-cancel-1.ndjson")), first);
}

#[test]
fn each_line_of_a_transcript_has_its_direction_and_a_time_that_never_goes_back() {
    let (_folder, file) = recorded(&[], &peer("agent.py", "dies-at-garbage"), "garbage-line");
    let lines = lines(&file);
    let times: Vec<f64> = lines.iter().map(|line| line["ms"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let said: Vec<(&str, &str)> =
        lines.iter().map(|line| (line["from"].as_str().unwrap(), line["phase"].as_str().unwrap())).collect();
    assert_eq!(said, [("lastword", "play"), ("lastword", "play"), ("peer", "play")]);
    assert_eq!((&lines[0]["text"], &lines[2]["end"]), (&"hello, peer".into(), &true.into()));
}

#[test]
fn what_is_no_transcript_is_not_played() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.ndjson");
    let line = |scenario: &str| {
        format!(r#"{{"scenario":"{scenario}","round":1,"phase":"play","ms":1,"from":"lastword","text":"x"}}"#)
    };
    for (text, why) in [
        (String::new(), "it holds no line that lastword sent"),
        ("noise\n".to_owned(), "line 1 is no line of a transcript"),
        (line("other"), "there is no scenario other"),
        (line("prompt-cancel"), "round 1 has not the messages of prompt-cancel"),
    ] {
        fs::write(&file, text).unwrap();
        let output = conform(&["--replay", file.to_str().unwrap()], &reference()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(code(&output) == 3 && said.contains(why), "{said}");
    }
}
