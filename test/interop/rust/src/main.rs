//! Drives a Whippet node with the released Rust client, unmodified.
//!
//! `whippet-interop walk HOST:PORT [MESSAGES]` calls every command that a node serves and sends and polls MESSAGES
//! (100,000 by default) messages of mixed sizes with headers; what comes back must be equal, byte for byte.

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
        _ => Err("usage: whippet-interop walk HOST:PORT [MESSAGES]".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("Error: {message}");
            ExitCode::FAILURE
        }
    }
}
