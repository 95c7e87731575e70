//! The floor of the benchmark: a blocking loop that reads a line, parses it, answers it, and flushes when its input is
//! drained. It has no tasks, no sessions and no promises; nothing that answers JSON-RPC can do much less.

use std::io::{self, BufRead, BufReader, BufWriter, Write};

use serde::Deserialize;
use serde_json::value::RawValue;

/// What a pipe holds, so that one system call moves what one end can offer the other.
const BUFFER_BYTES: usize = 64 * 1024;

/// A request, whose id and params are borrowed from the line as they came.
#[derive(Deserialize)]
struct Request<'line> {
    #[serde(borrow)]
    id: &'line RawValue,
    method: &'line str,
    #[serde(borrow)]
    params: &'line RawValue,
}

fn main() -> io::Result<()> {
    let mut input = BufReader::with_capacity(BUFFER_BYTES, io::stdin().lock());
    // Standard output has a buffer of its own that looks for line ends; this one only fills.
    let mut output = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
    let mut line = Vec::new();
    let mut sessions = 0_u64;
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return output.flush();
        }
        let Request { id, method, params } = serde_json::from_slice(&line)?;
        write!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":"#)?;
        match method {
            "_lastword/echo" => output.write_all(params.get().as_bytes())?,
            "session/set_mode" => output.write_all(b"{}")?,
            "session/prompt" => output.write_all(br#"{"stopReason":"end_turn"}"#)?,
            "session/new" => {
                sessions += 1;
                write!(output, r#"{{"sessionId":"session-{sessions}"}}"#)?;
            }
            "initialize" => output.write_all(br#"{"protocolVersion":1}"#)?,
            unknown => return Err(io::Error::other(format!("the method {unknown} is not part of the benchmark"))),
        }
        output.write_all(b"}\n")?;
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
}
