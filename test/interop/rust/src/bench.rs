//! Load from producers that each have a client of their own, for comparison with other clients on the same cluster.

use std::time::{Duration, Instant};

use bytes::Bytes;
use iggy::prelude::*;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::session;

/// What to do; every field is a flag.
pub struct Plan {
    pub address: String,
    pub topic: String,
    /// Messages per second of all producers together; 0 = as fast as answers come.
    pub rate: f64,
    pub seconds: f64,
    pub producers: u32,
    /// Messages of a send, and bytes of a message.
    pub batch: u32,
    pub size: usize,
    /// Each producer stays with one partition instead of taking all in turn.
    pub pinned: bool,
}

impl Plan {
    /// Reads "--name value" pairs.
    pub fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut plan = Self {
            address: String::new(),
            topic: String::new(),
            rate: 0.0,
            seconds: 10.0,
            producers: 12,
            batch: 100,
            size: 100,
            pinned: false,
        };
        let mut rest = arguments.iter();
        while let Some(&name) = rest.next() {
            if name == "--pinned" {
                plan.pinned = true;
                continue;
            }
            let value = *rest.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name {
                "--address" => plan.address = value.to_owned(),
                "--topic" => plan.topic = value.to_owned(),
                "--rate" => plan.rate = number(name, value)?,
                "--seconds" => plan.seconds = number(name, value)?,
                "--producers" => plan.producers = number(name, value)?,
                "--batch" => plan.batch = number(name, value)?,
                "--size" => plan.size = number(name, value)?,
                _ => return Err(format!("unknown flag {name}")),
            }
        }
        if plan.address.is_empty() || plan.topic.is_empty() {
            return Err("--address HOST:PORT and --topic STREAM/TOPIC must be given".to_owned());
        }
        if plan.producers == 0 || plan.batch == 0 || plan.size == 0 || plan.seconds <= 0.0 {
            return Err("--producers, --batch, --size and --seconds must be above 0".to_owned());
        }
        Ok(plan)
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} takes a number, got {value:?}"))
}

/// What one producer saw.
#[derive(Default)]
struct Seen {
    micros: Vec<f64>,
    messages: u64,
    errors: u64,
    moves: u64,
    first_error: String,
}

/// Runs the load and prints one JSON line.
pub async fn run(plan: Plan) -> Result<(), String> {
    let (stream, topic) = session::topic(&plan.topic)?;
    let mut clients = Vec::new();
    for _ in 0..plan.producers {
        clients.push(session::connect(&plan.address).await?);
    }
    let details = clients[0]
        .get_topic(&stream, &topic)
        .await
        .map_err(|error| format!("get the topic: {error}"))?
        .ok_or_else(|| format!("there is no topic {}", plan.topic))?;
    let partitions = details.partitions_count;
    let pause = (plan.rate > 0.0)
        .then(|| Duration::from_secs_f64(f64::from(plan.producers * plan.batch) / plan.rate));
    let length = Duration::from_secs_f64(plan.seconds);
    let started = Instant::now();
    let mut producers = JoinSet::new();
    for (index, client) in clients.into_iter().enumerate() {
        let (stream, topic) = (stream.clone(), topic.clone());
        let (batch, size, pinned) = (plan.batch, plan.size, plan.pinned);
        let first = index as u32;
        producers.spawn(async move {
            let mut seen = Seen::default();
            let payload = Bytes::from(vec![b'x'; size]);
            let mut place = session::place(&client).await;
            let mut ticks = pause.map(|pause| {
                let mut ticks = interval(pause);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
                ticks
            });
            let mut sends = 0u32;
            while started.elapsed() < length {
                if let Some(ticks) = &mut ticks {
                    ticks.tick().await;
                }
                let partition = if pinned { first } else { first.wrapping_add(sends) } % partitions;
                sends = sends.wrapping_add(1);
                let mut messages: Vec<IggyMessage> = (0..batch)
                    .filter_map(|_| IggyMessage::builder().payload(payload.clone()).build().ok())
                    .collect();
                let begun = Instant::now();
                let outcome = client
                    .send_messages(&stream, &topic, &Partitioning::partition_id(partition), &mut messages)
                    .await;
                seen.micros.push(begun.elapsed().as_secs_f64() * 1e6);
                match outcome {
                    Ok(_) => seen.messages += u64::from(batch),
                    Err(error) => {
                        seen.errors += 1;
                        if seen.first_error.is_empty() {
                            seen.first_error = format!("{error} (code {})", error.as_code());
                        }
                    }
                }
                let now = session::place(&client).await;
                if now != place {
                    seen.moves += 1;
                    place = now;
                }
            }
            // The logout is of no interest here, and a node that is gone must not hold up the report.
            let _ = timeout(Duration::from_secs(2), client.shutdown()).await;
            seen
        });
    }
    let mut total = Seen::default();
    while let Some(seen) = producers.join_next().await {
        let seen = seen.map_err(|error| format!("a producer failed: {error}"))?;
        total.micros.extend(seen.micros);
        total.messages += seen.messages;
        total.errors += seen.errors;
        total.moves += seen.moves;
        if total.first_error.is_empty() {
            total.first_error = seen.first_error;
        }
    }
    report(&plan, total, started.elapsed().as_secs_f64());
    Ok(())
}

fn report(plan: &Plan, mut seen: Seen, seconds: f64) {
    seen.micros.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = seen.micros.len().saturating_sub(1);
        let index = ((share * seen.micros.len() as f64).ceil() as usize).saturating_sub(1);
        seen.micros.get(index.min(last)).copied().unwrap_or(0.0)
    };
    println!(
        concat!(
            "{{\"client\":\"iggy 0.11.0 (Rust)\",\"topic\":\"{}\",\"producers\":{},\"batch\":{},\"size\":{},\"rate\":{},\"pinned\":{},",
            "\"messages\":{},\"requests\":{},\"errors\":{},\"first_error\":\"{}\",\"session_moves\":{},\"seconds\":{:.3},\"messages_per_second\":{:.1},",
            "\"p50_us\":{:.1},\"p99_us\":{:.1},\"p99_9_us\":{:.1},\"max_us\":{:.1}}}"
        ),
        plan.topic,
        plan.producers,
        plan.batch,
        plan.size,
        plan.rate,
        plan.pinned,
        seen.messages,
        seen.micros.len(),
        seen.errors,
        seen.first_error.replace(['"', '\\'], "'"),
        seen.moves,
        seconds,
        seen.messages as f64 / seconds,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
    );
}
