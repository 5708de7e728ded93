//! Load from producers that each have a client of their own, for comparison with other clients on the same cluster.

use std::time::{Duration, Instant};

use bytes::Bytes;
use iggy::prelude::*;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use crate::session;

/// What to do; every field is a flag.
pub struct Plan {
    pub address: String,
    pub topic: String,
    /// Messages per second of all producers together; 0 = as fast as answers come.
    pub rate: f64,
    pub seconds: f64,
    /// Seconds before those. What was due in them is not counted.
    pub warm_up: f64,
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
            warm_up: 0.0,
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
                "--warm-up" => plan.warm_up = number(name, value)?,
                "--producers" => plan.producers = number(name, value)?,
                "--batch" => plan.batch = number(name, value)?,
                "--size" => plan.size = number(name, value)?,
                _ => return Err(format!("unknown flag {name}")),
            }
        }
        if plan.address.is_empty() || plan.topic.is_empty() {
            return Err("--address HOST:PORT and --topic STREAM/TOPIC must be given".to_owned());
        }
        if plan.warm_up < 0.0 {
            return Err("--warm-up must not be below 0".to_owned());
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
    failures: u64,
    moves: u64,
    first_error: String,
    ended: Option<Instant>,
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
    let began = Instant::now();
    let counted = began + Duration::from_secs_f64(plan.warm_up);
    let until = counted + Duration::from_secs_f64(plan.seconds);
    let mut running = JoinSet::new();
    for (index, client) in clients.into_iter().enumerate() {
        let (stream, topic) = (stream.clone(), topic.clone());
        let (batch, size, pinned, producers) = (plan.batch, plan.size, plan.pinned, plan.producers);
        let first = index as u32;
        running.spawn(async move {
            let mut seen = Seen::default();
            let payload = Bytes::from(vec![b'x'; size]);
            let mut place = session::place(&client).await;
            let mut sends = 0u32;
            loop {
                // A send that is late is not dropped, and its latency begins when it was due: else a node that is slow
                // would be asked for less.
                let due = match pause {
                    Some(pause) => began + pause.mul_f64(f64::from(sends) + f64::from(index as u32) / f64::from(producers)),
                    None => Instant::now(),
                };
                if due >= until || Instant::now() >= until {
                    break;
                }
                if pause.is_some() {
                    sleep_until(due.into()).await;
                }
                let partition = if pinned { first } else { first.wrapping_add(sends) } % partitions;
                sends = sends.wrapping_add(1);
                let mut messages: Vec<IggyMessage> = (0..batch)
                    .filter_map(|_| IggyMessage::builder().payload(payload.clone()).build().ok())
                    .collect();
                let due = if pause.is_some() { due } else { Instant::now() };
                let outcome = client
                    .send_messages(&stream, &topic, &Partitioning::partition_id(partition), &mut messages)
                    .await;
                let micros = due.elapsed().as_secs_f64() * 1e6;
                let now = session::place(&client).await;
                let moved = now != place;
                place = now;
                if due < counted {
                    continue;
                }
                seen.micros.push(micros);
                seen.moves += u64::from(moved);
                match outcome {
                    Ok(_) => seen.messages += u64::from(batch),
                    Err(error) => {
                        seen.failures += 1;
                        if seen.first_error.is_empty() {
                            seen.first_error = format!("{error} (code {})", error.as_code());
                        }
                    }
                }
            }
            seen.ended = Some(Instant::now());
            // The logout is of no interest here, and a node that is gone must not hold up the report.
            let _ = timeout(Duration::from_secs(2), client.shutdown()).await;
            seen
        });
    }
    let mut total = Seen::default();
    while let Some(seen) = running.join_next().await {
        let seen = seen.map_err(|error| format!("a producer failed: {error}"))?;
        total.micros.extend(seen.micros);
        total.messages += seen.messages;
        total.failures += seen.failures;
        total.moves += seen.moves;
        total.ended = total.ended.max(seen.ended);
        if total.first_error.is_empty() {
            total.first_error = seen.first_error;
        }
    }
    let seconds = total.ended.unwrap_or(until).saturating_duration_since(counted).as_secs_f64();
    report(&plan, total, seconds);
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
            "\"messages\":{},\"requests\":{},\"failures\":{},\"first_error\":\"{}\",\"session_moves\":{},\"seconds\":{:.3},\"messages_per_second\":{:.1},",
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
        seen.failures,
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
