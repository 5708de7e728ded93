//! Sends that are asked for one at a time, each reported with its time and with the place of the session before and after.

use std::io::BufRead;
use std::time::Instant;

use iggy::prelude::*;

use crate::session;

/// Reads lines "PARTITION TEXT" from the standard input, sends the text to the partition, and answers each with one JSON
/// line, until the input ends.
pub async fn run(address: &str, topic: &str) -> Result<(), String> {
    let (stream, topic) = session::topic(topic)?;
    let client = session::connect(address).await?;
    println!("{{\"connected\":\"{}\"}}", session::place(&client).await);
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| format!("read the next send: {error}"))?;
        let (partition, text) = line
            .split_once(' ')
            .ok_or_else(|| format!("a send is PARTITION TEXT, got {line:?}"))?;
        let partition: u32 = partition
            .parse()
            .map_err(|error| format!("partition {partition:?}: {error}"))?;
        let message = IggyMessage::builder()
            .payload(text.to_owned().into())
            .build()
            .map_err(|error| format!("build the message: {error}"))?;
        let before = session::place(&client).await;
        let started = Instant::now();
        let outcome = client
            .send_messages(&stream, &topic, &Partitioning::partition_id(partition), &mut [message])
            .await;
        let millis = started.elapsed().as_secs_f64() * 1e3;
        let after = session::place(&client).await;
        let error = match &outcome {
            Ok(_) => String::new(),
            Err(error) => format!("{error} (code {})", error.as_code()).replace(['"', '\\'], "'"),
        };
        println!(
            "{{\"partition\":{partition},\"ms\":{millis:.3},\"before\":\"{before}\",\"after\":\"{after}\",\"error\":\"{error}\"}}"
        );
    }
    client
        .shutdown()
        .await
        .map_err(|error| format!("shut down: {error}"))
}
