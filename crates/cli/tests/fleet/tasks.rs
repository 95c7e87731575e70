//! Tickets as tasks, for clients that declare the extension.

use serde_json::{Value, json};

use crate::scene::{Daemon, Fleet, bearer, call, post, tool, until};

/// What a lead takes: tasks, and the forms that questions are asked with.
fn takes_tasks() -> Value {
    json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

/// A lead of the revision of 2026-07-28, in which each request says what its client takes.
pub(crate) struct Lead<'a> {
    daemon: &'a Daemon,
    token: &'a str,
    takes: Value,
}

impl<'a> Lead<'a> {
    pub(crate) fn new(daemon: &'a Daemon, token: &'a str) -> Self {
        Self { daemon, token, takes: takes_tasks() }
    }

    /// What came back for a request: the whole message.
    pub(crate) fn says(&self, path: &str, method: &str, name: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": self.takes,
        });
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let headers = format!(
            "{}MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n",
            bearer(self.token)
        );
        post(&self.daemon.address, path, &headers, &request.to_string()).message()
    }

    fn result(&self, method: &str, name: &str, params: Value) -> Value {
        let message = self.says("/mcp", method, name, params);
        assert!(message["error"].is_null(), "{message}");
        message["result"].clone()
    }

    /// The code and the words of the error that a request is refused with.
    fn refused(&self, method: &str, name: &str, params: Value) -> (i64, String) {
        let message = self.says("/mcp", method, name, params);
        let error = &message["error"];
        let code = error["code"].as_i64().unwrap_or_else(|| panic!("{message}"));
        (code, error["message"].as_str().unwrap().to_owned())
    }

    fn send(&self, arguments: &Value) -> Value {
        self.result("tools/call", "fleet_send", json!({"name": "fleet_send", "arguments": arguments}))
    }

    fn get(&self, task: &str) -> Value {
        self.result("tasks/get", task, json!({"taskId": task}))
    }

    /// Looks at a task until it has this status.
    fn until(&self, task: &str, status: &str) -> Value {
        let mut seen = Value::Null;
        until(|| {
            seen = self.get(task);
            seen["status"] == status
        });
        seen
    }

    fn update(&self, task: &str, responses: &Value) -> Result<Value, (i64, String)> {
        let message = self.says("/mcp", "tasks/update", task, json!({"taskId": task, "inputResponses": responses}));
        match message["error"]["message"].as_str() {
            Some(words) => Err((message["error"]["code"].as_i64().unwrap(), words.to_owned())),
            None => Ok(message["result"].clone()),
        }
    }

    fn cancel(&self, task: &str) -> Value {
        self.result("tasks/cancel", task, json!({"taskId": task}))
    }
}

fn accept(answer: &str) -> Value {
    json!({"action": "accept", "content": {"answer": answer}})
}

#[test]
fn new_work_is_a_task_for_a_client_that_declares_tasks_and_forms_and_a_ticket_for_every_other_one() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = fleet.token();
    let mut lead = Lead::new(&daemon, &token);
    let discovered = lead.result("server/discover", "", json!({}));
    assert_eq!(discovered["capabilities"]["extensions"], json!({"io.modelcontextprotocol/tasks": {}}), "{discovered}");
    let spawn = json!({"name": "fleet_spawn", "arguments": {"kind": "scripted"}});
    // It declares tasks, and what is no new work is as ever.
    assert_eq!(lead.result("tools/call", "fleet_spawn", spawn)["structuredContent"]["worker"], 1);

    let mut ticket = 0;
    // Long enough that it has not ended when its task is made, which would be no task then.
    let work = json!({"worker": 1, "content": "wait=200 reply=done", "wait": 25});
    for takes in [takes_tasks(), json!({"elicitation": {"form": {}}, "extensions": takes_tasks()["extensions"]})] {
        lead.takes = takes;
        ticket += 1;
        let created = lead.send(&work);
        assert_eq!(created["resultType"], "task", "{created}");
        assert_eq!(created["taskId"], format!("ticket-{ticket}"), "{created}");
        assert_eq!((&created["ttlMs"], &created["pollIntervalMs"]), (&Value::Null, &json!(1000)), "{created}");
        assert!(created.get("structuredContent").is_none() && created.get("result").is_none(), "{created}");
        // The very result that the call would have had.
        let seen = lead.until(&format!("ticket-{ticket}"), "completed");
        let polled = call(&daemon.address, &token, "fleet_poll", &json!({"ticket": ticket}));
        assert_eq!(seen["result"]["structuredContent"], polled["tickets"][0], "{seen}");
        let words = format!("Ticket {ticket} is completed. Worker 1 replied:\n\ndone");
        assert_eq!(seen["result"]["content"], json!([{"type": "text", "text": words}]), "{seen}");
    }
    for takes in [
        json!({}),
        json!({"elicitation": {}}),
        json!({"extensions": takes_tasks()["extensions"]}),
        json!({"elicitation": {"url": {}}, "extensions": takes_tasks()["extensions"]}),
    ] {
        lead.takes = takes;
        ticket += 1;
        let sent = lead.send(&work);
        assert_eq!(sent["resultType"], "complete", "{sent}");
        let seen = &sent["structuredContent"];
        assert_eq!((&seen["ticket"], &seen["reply"]), (&json!(ticket), &json!("done")), "{sent}");
    }
    lead.takes = json!({"elicitation": {}});
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": "ticket-1", "inputResponses": {}});
        assert_eq!(lead.refused(method, "ticket-1", params).0, -32021, "{method}");
    }

    // A client of 2025-11-25 sees nothing of it, whatever it says when it shakes hands.
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": takes_tasks(), "clientInfo": {"name": "test", "version": "1"},
    }});
    let agreed = post(&daemon.address, "/mcp", &bearer(&token), &initialize.to_string()).result();
    assert_eq!(agreed["protocolVersion"], "2025-11-25", "{agreed}");
    assert_eq!(agreed["capabilities"], json!({"tools": {}}), "{agreed}");
    let sent = post(&daemon.address, "/mcp", &bearer(&token), &tool("fleet_send", &work).to_string()).result();
    assert_eq!(sent["structuredContent"]["reply"], "done", "{sent}");
    assert!(sent.get("resultType").is_none(), "{sent}");
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn a_question_of_a_task_is_answered_once_and_the_reply_is_there_after_a_kill() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = fleet.token();
    let lead = Lead::new(&daemon, &token);
    for worker in [1, 2] {
        call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted"}));
        let sent = lead.send(&json!({"worker": worker, "content": "ask=which wait=300 reply=done"}));
        assert_eq!(sent["taskId"], format!("ticket-{worker}"), "{sent}");
    }
    let asked = lead.until("ticket-1", "input_required");
    let [(key, request)] = &asked["inputRequests"].as_object().unwrap().iter().collect::<Vec<_>>()[..] else {
        panic!("{asked}")
    };
    let form = json!({"mode": "form", "message": "which", "requestedSchema": {
        "type": "object", "properties": {"answer": {"type": "string", "minLength": 1}}, "required": ["answer"],
    }});
    assert_eq!(**request, json!({"method": "elicitation/create", "params": form}));
    let other =
        lead.until("ticket-2", "input_required")["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let open = |lead: &Lead<'_>| lead.get("ticket-1")["inputRequests"].clone();

    for (responses, code, words) in [
        (json!({(*key): {"action": "decline"}}), -32602, "still waits for an answer"),
        (json!({(*key): {"action": "cancel"}}), -32602, "still waits for an answer"),
        (json!({(*key): {"action": "accept"}}), -32602, "has no text in content.answer"),
        (json!({(*key): {"action": "accept", "content": {"answer": 1}}}), -32602, "has no text in content.answer"),
        (json!({(*key): accept("")}), -32602, "the text is empty"),
        (json!({(*key): "this"}), -32602, "is wrong"),
        (json!({"question-99": accept("this")}), -32602, "question-99: there is no such question"),
        (json!({"question-01": accept("this")}), -32602, "there is no request \"question-01\""),
        // A key of another task changes neither of them, and nothing beside it is done.
        (
            json!({(*key): accept("this"), (other.as_str()): accept("this")}),
            -32602,
            "was not asked by the task ticket-1",
        ),
    ] {
        let (found, said) = lead.update("ticket-1", &responses).unwrap_err();
        assert!(found == code && said.contains(words), "{responses}: {found} {said}");
        assert_eq!(open(&lead), asked["inputRequests"], "{responses}");
    }
    assert_eq!(lead.update("ticket-1", &json!({(*key): accept("this")})), Ok(json!({"resultType": "complete"})));
    // Whoever has not heard that, says it again; nobody says something else.
    assert_eq!(lead.update("ticket-1", &json!({(*key): accept("this")})), Ok(json!({"resultType": "complete"})));
    let (code, said) = lead.update("ticket-1", &json!({(*key): accept("that")})).unwrap_err();
    assert_eq!((code, said), (-32602, format!("{key}: the question was answered already")));

    // The client looks away; the reply comes.
    let seen = lead.until("ticket-1", "completed");
    assert_eq!(seen["result"]["structuredContent"]["reply"], "done", "{seen}");
    assert_eq!(seen["createdAt"], asked["createdAt"], "{seen}");
    assert!(seen["createdAt"].as_str() < asked["lastUpdatedAt"].as_str(), "{asked}");
    assert!(asked["lastUpdatedAt"].as_str() < seen["lastUpdatedAt"].as_str(), "{seen}");
    // Not even its worker's end changes it, nor a cancel, which says no more than what is wanted.
    call(&daemon.address, &token, "fleet_stop", &json!({"worker": 1}));
    assert_eq!(lead.cancel("ticket-1"), json!({"resultType": "complete"}));
    let queued = lead.send(&json!({"worker": 2, "content": "reply=queued"}));
    assert_eq!(
        (&queued["status"], &queued["statusMessage"]),
        (&json!("working"), &json!("queued for worker 2, behind 0 others"))
    );
    assert!(!daemon.ends_on("-KILL").success());

    let daemon = fleet.serve();
    let lead = Lead::new(&daemon, &token);
    assert_eq!(lead.get("ticket-1"), seen);
    assert_eq!(lead.update("ticket-1", &json!({(*key): accept("this")})), Ok(json!({"resultType": "complete"})));
    // Its worker was at this one, and may have done a part of it; the one behind it has lost nothing but time.
    // That it has failed is seen once it is stored.
    let failed = lead.until("ticket-2", "failed");
    let reason = failed["statusMessage"].as_str().unwrap();
    assert!(reason.starts_with("the service ended while the worker was at it"), "{failed}");
    assert_eq!((&failed["error"]["code"], &failed["error"]["data"]["ticket"]), (&json!(-32603), &json!(2)), "{failed}");
    assert_eq!(failed["error"]["message"], format!("Ticket 2 is failed: {reason}."), "{failed}");
    let (_, said) = lead.update("ticket-2", &json!({(other.as_str()): accept("this")})).unwrap_err();
    assert_eq!(said, format!("{other}: the ticket has ended; poll it to see how"));
    let seen = lead.until("ticket-3", "completed");
    assert_eq!(
        (&seen["result"]["structuredContent"]["reply"], &seen["createdAt"]),
        (&json!("queued"), &queued["createdAt"])
    );
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn a_task_that_is_cancelled_is_a_cancelled_ticket_and_its_worker_lives_on() {
    let fleet = Fleet::new("");
    let daemon = fleet.serve();
    let token = fleet.token();
    let lead = Lead::new(&daemon, &token);
    call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted"}));
    let task = lead.send(&json!({"worker": 1, "content": "wait=60000", "request_key": "once"}));
    let again = lead.send(&json!({"worker": 1, "content": "wait=60000", "request_key": "once"}));
    assert_eq!((&task["taskId"], &again["taskId"]), (&json!("ticket-1"), &json!("ticket-1")));
    assert_eq!(lead.cancel("ticket-1"), json!({"resultType": "complete"}));
    let seen = lead.get("ticket-1");
    assert_eq!((&seen["status"], &seen["statusMessage"]), (&json!("cancelled"), &json!("it was cancelled")), "{seen}");
    let polled = call(&daemon.address, &token, "fleet_poll", &json!({"ticket": 1}));
    assert_eq!(polled["tickets"][0]["state"], "cancelled", "{polled}");
    let alive = json!({"worker": 1, "content": "reply=alive", "request_key": "twice"});
    lead.send(&alive);
    assert_eq!(lead.until("ticket-2", "completed")["result"]["structuredContent"]["reply"], "alive");
    // Of one that has ended, there is nothing to look after.
    assert_eq!(lead.send(&alive)["structuredContent"]["reply"], "alive");

    for task in ["ticket-3", "ticket-01", "ticket-+1", "ticket-", "1", "", "ticket-99999999999999999999"] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let refused = lead.refused(method, task, json!({"taskId": task, "inputResponses": {}}));
            let words = "there is no such ticket; poll without one to see those that there are";
            assert_eq!(refused, (-32602, words.to_owned()), "{method} {task}");
        }
    }
    // There is neither a list of them nor a call that waits for one: these were in 2025-11-25.
    for method in ["tasks/list", "tasks/result"] {
        assert_eq!(lead.refused(method, "ticket-1", json!({"taskId": "ticket-1"})).0, -32601);
    }
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn a_question_with_options_is_a_form_that_offers_them_and_one_that_takes_nothing_else_says_so() {
    let fleet = Fleet::new("");
    let file = std::fs::read_to_string(fleet.file()).unwrap();
    std::fs::write(fleet.file(), format!("{file}permissions = \"ask\"\n")).unwrap();
    let daemon = fleet.serve();
    let token = fleet.token();
    let lead = Lead::new(&daemon, &token);
    call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted"}));
    lead.send(&json!({"worker": 1, "content": "permission"}));
    let asked = lead.until("ticket-1", "input_required");
    let polled = call(&daemon.address, &token, "fleet_poll", &json!({"ticket": 1}));
    let options = &polled["tickets"][0]["questions"][0]["options"];
    assert!(options.as_array().is_some_and(|options| options.len() > 1), "{polled}");
    let schema = &asked["inputRequests"]["question-1"]["params"]["requestedSchema"];
    assert_eq!(schema["properties"]["answer"], json!({"type": "string", "enum": options}), "{asked}");

    let (code, said) = lead.update("ticket-1", &json!({"question-1": accept("perhaps")})).unwrap_err();
    let options: Vec<_> = options.as_array().unwrap().iter().map(|option| option.as_str().unwrap()).collect();
    let words = format!("question-1: this question takes one of its options as its answer: {}", options.join(", "));
    assert_eq!((code, said), (-32602, words));
    lead.update("ticket-1", &json!({"question-1": accept(options[0])})).unwrap();
    lead.until("ticket-1", "completed");
    assert!(daemon.ends_on("-TERM").success());

    // Whoever asks freely may offer some as well.
    let fleet = Fleet::silent();
    let daemon = fleet.serve();
    let token = fleet.token();
    let lead = Lead::new(&daemon, &token);
    call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "silent"}));
    lead.send(&json!({"worker": 1, "content": "x"}));
    until(|| lead.get("ticket-1")["statusMessage"] == "worker 1 is at it");
    let of_worker = bearer(fleet.told_to_silent()["env"][1]["value"].as_str().unwrap());
    let ask = |question: &str, options: Value| {
        let ask = json!({"ticket": 1, "question": question, "options": options, "wait": 0});
        let asked = post(&daemon.address, "/worker/mcp", &of_worker, &tool("fleet_ask", &ask).to_string()).result();
        asked["structuredContent"]["question"].as_u64()
    };
    until(|| ask("colour", json!(["red", "blue"])) == Some(1));
    assert_eq!(ask("size", json!([])), Some(2));
    let asked = lead.get("ticket-1");
    let forms = ["question-1", "question-2"].map(|key| asked["inputRequests"][key]["params"].clone());
    assert_eq!((&forms[0]["message"], &forms[1]["message"]), (&json!("colour"), &json!("size")), "{asked}");
    let schema = &forms[0]["requestedSchema"]["properties"]["answer"];
    let offer = "One of these, or something else: red | blue.";
    assert_eq!(*schema, json!({"type": "string", "minLength": 1, "description": offer}), "{asked}");
    // A part of the answers is taken, and the rest is waited for; one that is refused keeps no other away.
    lead.update("ticket-1", &json!({"question-1": accept("green")})).unwrap();
    assert_eq!(lead.get("ticket-1")["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["question-2"]);
    let both = json!({"question-1": accept("red"), "question-2": accept("large")});
    let (_, said) = lead.update("ticket-1", &both).unwrap_err();
    assert_eq!(said, "question-1: the question was answered already");
    assert_eq!(lead.get("ticket-1")["status"], "working");
    assert!(daemon.ends_on("-TERM").success());
}

#[test]
fn only_a_look_at_how_a_task_ended_lets_it_make_room_for_a_newer_one() {
    let fleet = Fleet::new("tickets = 1");
    let daemon = fleet.serve();
    let token = fleet.token();
    let lead = Lead::new(&daemon, &token);
    call(&daemon.address, &token, "fleet_spawn", &json!({"kind": "scripted"}));
    let work = json!({"worker": 1, "content": "wait=200 reply=done"});
    assert_eq!(lead.send(&work)["taskId"], "ticket-1");
    // Once its worker has nothing to do, it has ended; that is no look at it.
    until(|| call(&daemon.address, &token, "fleet_list", &json!({}))["workers"][0].get("at").is_none());
    lead.update("ticket-1", &json!({})).unwrap();
    lead.cancel("ticket-1");
    let refused = lead.send(&work);
    assert_eq!(refused["isError"], true, "{refused}");
    assert_eq!(lead.get("ticket-1")["result"]["structuredContent"]["reply"], "done");
    // That it was seen is stored in its own time.
    until(|| lead.send(&work)["taskId"] == "ticket-2");
    assert_eq!(lead.refused("tasks/get", "ticket-1", json!({"taskId": "ticket-1"})).0, -32602);
    assert!(daemon.ends_on("-TERM").success());
}
