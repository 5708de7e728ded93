//! Drives a Whippet node with the released Rust client, unmodified.
//!
//! * `whippet-interop walk HOST:PORT [MESSAGES]` calls every command that a node serves and sends and polls MESSAGES
//!   (100,000 by default) messages of mixed sizes with headers; what comes back must be equal, byte for byte.
//! * `whippet-interop e1 HOST:PORT STREAM/TOPIC` sends what it is told on its standard input, line by line, and reports
//!   each send's time and whether the session moved.
//! * `whippet-interop bench --address HOST:PORT --topic STREAM/TOPIC [--rate MESSAGES_PER_SECOND] [--seconds N]
//!   [--warm-up SECONDS] [--producers N] [--batch N] [--size BYTES] [--pinned]` loads a topic and prints one JSON line;
//!   `whippet bench split-primaries --client` runs it.

mod bench;
mod e1;
mod session;
mod walk;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["walk", address] => walk::run(address, 100_000).await,
        ["walk", address, messages] => match messages.parse() {
            Ok(messages) => walk::run(address, messages).await,
            Err(_) => Err(format!("MESSAGES must be a number, got {messages:?}")),
        },
        ["e1", address, topic] => e1::run(address, topic).await,
        ["bench", flags @ ..] => match bench::Plan::parse(flags) {
            Ok(plan) => bench::run(plan).await,
            Err(message) => Err(message),
        },
        _ => Err("usage: whippet-interop walk HOST:PORT [MESSAGES] | e1 HOST:PORT STREAM/TOPIC | bench FLAGS".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("Error: {message}");
            ExitCode::FAILURE
        }
    }
}
