//! Who is let in.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::json;

use crate::scene::{Fleet, bearer, call, post, tool};

#[test]
fn a_call_without_the_token_of_leads_is_refused_and_does_nothing() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = fleet.token();
    let spawn = tool("fleet_spawn", &json!({"kind": "scripted"})).to_string();
    let mut wrong = token.clone();
    wrong.replace_range(..1, if token.starts_with('0') { "1" } else { "0" });
    for headers in
        [String::new(), bearer(""), bearer(&wrong), bearer(&token[1..]), format!("Authorization: Basic {token}\r\n")]
    {
        let response = post(&daemon.address, "/mcp", &headers, &spawn);
        assert_eq!(response.status, 401, "{response:?}");
        assert!(response.body.to_lowercase().contains("www-authenticate: bearer"), "{response:?}");
    }
    assert_eq!(post(&daemon.address, "/worker/mcp", &bearer(&token), &spawn).status, 403);
    assert_eq!(post(&daemon.address, "/", &bearer(&token), &spawn).status, 404);
    assert_eq!(call(&daemon.address, &token, "fleet_list", &json!({}))["workers"], json!([]));
    assert_eq!(post(&daemon.address, "/mcp", &bearer(&token), &spawn).status, 200);
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn a_page_in_a_browser_and_a_name_that_is_not_of_this_machine_are_refused() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = bearer(&fleet.token());
    let list = tool("fleet_list", &json!({})).to_string();
    for (header, status) in [
        ("Host: evil.example\r\n".to_owned(), 403),
        ("Host: 127.0.0.1:1\r\n".to_owned(), 403),
        ("Origin: https://evil.example\r\n".to_owned(), 403),
        (format!("Origin: http://{}\r\n", daemon.address), 403),
        ("Origin: null\r\n".to_owned(), 403),
        (format!("Host: localhost:{}\r\n", daemon.address.rsplit(':').next().unwrap()), 200),
    ] {
        let response = post(&daemon.address, "/mcp", &format!("{token}{header}"), &list);
        assert_eq!(response.status, status, "{header}: {response:?}");
    }
    assert!(daemon.ends_on("-INT").success());
}

#[test]
fn the_token_is_made_once_for_its_owner_alone_and_one_that_others_can_read_is_refused() {
    let fleet = Fleet::new("");
    let token = fleet.token();
    assert_eq!(token.len(), 64);
    assert_eq!(fleet.token(), token);
    let file = fleet.beside(".token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let output = fleet.run(&["serve"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("can be read by others (mode 644)") && said.contains("chmod 600"), "{said}");
}
