//! The pages of the program, and what it gives to shells.

use std::process::{Command, Output};

fn lastword(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lastword")).args(arguments).output().unwrap()
}

/// What the program printed, successfully.
fn printed(arguments: &[&str]) -> String {
    let output = lastword(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the commands, as the first page lists them.
fn commands() -> Vec<String> {
    let page = printed(&["help"]);
    let (_, list) = page.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  "));
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).filter(|name| name != "help").collect()
}

#[test]
fn each_command_has_a_page_with_an_example_and_the_page_of_its_option_is_the_same() {
    let commands = commands();
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        let page = printed(&["help", &command]);
        let examples = page.lines().filter(|line| line.starts_with("    ") && line.contains("lastword"));
        assert_ne!(examples.count(), 0, "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 120), "{page}");
        assert_eq!(page, printed(&[&command, "--help"]));
    }
}

#[test]
fn the_pages_of_commands_that_judge_or_serve_say_what_their_exit_status_means() {
    for page in [&["help", "agent"][..], &["help", "guard"], &["help", "fleet"], &["help", "trace", "check"]] {
        assert!(printed(page).contains("Exit status: 0 "));
    }
}

#[test]
fn what_is_no_argument_is_named_with_the_usage() {
    let output = lastword(&["agent", "--no-such-option"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("--no-such-option") && said.contains("Usage: lastword agent"), "{said}");
}

#[test]
fn every_shell_gets_a_script_that_knows_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for command in commands() {
            assert!(script.contains(&command), "{shell} does not know {command}");
        }
        assert!(script.contains("line-bytes-max"), "{shell}");
    }
    assert_eq!(lastword(&["completions", "no-such-shell"]).status.code(), Some(2));
}

#[test]
fn bash_completes_a_command_and_an_option_with_it() {
    let script = r#"
        source <("$0" completions bash)
        COMP_WORDS=(lastword tr) COMP_CWORD=1; _lastword lastword tr lastword; echo "${COMPREPLY[@]}"
        COMP_WORDS=(lastword agent --gr) COMP_CWORD=2; _lastword lastword --gr agent; echo "${COMPREPLY[@]}""#;
    let output = Command::new("bash").args(["-euc", script, env!("CARGO_BIN_EXE_lastword")]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "trace\n--grace-ms\n", "{:?}", output.stderr);
}
