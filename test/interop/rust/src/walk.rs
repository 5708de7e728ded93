//! The walk over every command.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Instant;

use bytes::Bytes;
use iggy::prelude::*;

type Outcome = Result<(), String>;

const STREAM: &str = "rust-orders";
const TOPIC: &str = "events";
const SIZES: [usize; 11] = [1, 2, 7, 48, 100, 255, 256, 1000, 1024, 4096, 9000];

pub async fn run(address: &str, messages: u64) -> Outcome {
    let client = connect(address).await?;
    system(&client).await?;
    catalog(&client).await?;
    offsets_and_polls(&client).await?;
    bulk(&client, messages).await?;
    producer_and_consumer(&client).await?;
    unavailable(&client).await?;
    cleanup(&client).await?;
    println!("rust: every step passed");
    Ok(())
}

fn ok(text: impl AsRef<str>) {
    println!("ok    {}", text.as_ref());
}

fn expect(condition: bool, text: impl AsRef<str>) -> Outcome {
    if condition {
        ok(text);
        return Ok(());
    }
    Err(format!("not as promised: {}", text.as_ref()))
}

fn equal<T: PartialEq + Debug>(got: T, wanted: T, text: &str) -> Outcome {
    if got == wanted {
        ok(text);
        return Ok(());
    }
    Err(format!("{text}: got {got:?}, wanted {wanted:?}"))
}

fn refused<T: Debug>(result: Result<T, IggyError>, code: u32, text: &str) -> Outcome {
    match result {
        Err(error) if error.as_code() == code => {
            ok(format!("{text}: {error}"));
            Ok(())
        }
        other => Err(format!("{text}: wanted error {code}, got {other:?}")),
    }
}

fn id(name: &str) -> Identifier {
    Identifier::named(name).expect("a valid name")
}

/// Turns a client error into the text of this program's own.
trait Context<T> {
    fn during(self, what: &str) -> Result<T, String>;
}

impl<T> Context<T> for Result<T, IggyError> {
    fn during(self, what: &str) -> Result<T, String> {
        self.map_err(|error| format!("{what}: {error} (code {})", error.as_code()))
    }
}

async fn connect(address: &str) -> Result<IggyClient, String> {
    let client = IggyClient::builder()
        .with_tcp()
        .with_server_address(address.to_owned())
        .build()
        .during("build the client")?;
    client.connect().await.during("connect")?;
    client.ping().await.during("ping")?;
    ok("ping before login");
    refused(client.get_streams().await, 40, "streams before login")?;
    refused(
        client.login_user("iggy", "not the password").await,
        42,
        "wrong password",
    )?;
    let identity = client.login_user("iggy", "iggy").await.during("login")?;
    equal(identity.user_id, 0, "login as root")?;
    Ok(client)
}

async fn system(client: &IggyClient) -> Outcome {
    let stats = client.get_stats().await.during("stats")?;
    expect(stats.process_id > 0, format!("stats: pid {}", stats.process_id))?;
    let roster = client.get_cluster_metadata().await.during("cluster metadata")?;
    equal(roster.nodes.len(), 1, "one node in the roster")?;
    let me = client.get_me().await.during("me")?;
    equal(me.user_id, Some(0), "me is root")?;
    let same = client.get_client(me.client_id).await.during("client")?;
    equal(same.map(|c| c.address), Some(me.address.clone()), "client by id")?;
    expect(
        client
            .get_clients()
            .await
            .during("clients")?
            .iter()
            .any(|c| c.client_id == me.client_id),
        "clients list this connection",
    )?;
    expect(
        client.get_client(u32::MAX).await.during("missing client")?.is_none(),
        "missing client is none",
    )?;
    let specs = client
        .describe_options(OptionsScope::Topic)
        .await
        .during("describe options")?;
    equal(specs.len(), 9, "topic options")
}

async fn catalog(client: &IggyClient) -> Outcome {
    let stream = client.create_stream(STREAM).await.during("create stream")?;
    equal(stream.name.as_str(), STREAM, "stream created")?;
    refused(client.create_stream(STREAM).await, 1012, "stream name taken")?;
    let renamed = "rust-renamed";
    client
        .update_stream(&id(STREAM), renamed, &StreamUpdateOptions::default())
        .await
        .during("update stream")?;
    expect(
        client.get_stream(&id(renamed)).await.during("get stream")?.is_some(),
        "stream renamed",
    )?;
    client
        .update_stream(&id(renamed), STREAM, &StreamUpdateOptions::default())
        .await
        .during("update stream back")?;
    expect(
        client.get_stream(&id("missing")).await.during("get stream")?.is_none(),
        "missing stream is none",
    )?;

    let options = TopicCreateOptions {
        partitions_count: Some(3),
        segment_size: Some(IggyByteSize::from(1024 * 1024)),
        ..Default::default()
    };
    let topic = client
        .create_topic(&id(STREAM), TOPIC, &options)
        .await
        .during("create topic")?;
    equal(topic.partitions_count, 3, "topic created with 3 partitions")?;
    refused(
        client.create_topic(&id(STREAM), TOPIC, &options).await,
        2013,
        "topic name taken",
    )?;
    refused(
        client.create_topic(&id("missing"), TOPIC, &options).await,
        1009,
        "topic in a missing stream",
    )?;
    let update = TopicUpdateOptions {
        compression_algorithm: Some(CompressionAlgorithm::Gzip),
        ..Default::default()
    };
    client
        .update_topic(&id(STREAM), &id(TOPIC), TOPIC, &update)
        .await
        .during("update topic")?;
    let topic = client
        .get_topic(&id(STREAM), &id(TOPIC))
        .await
        .during("get topic")?
        .ok_or("the topic is gone")?;
    equal(
        topic.compression_algorithm,
        CompressionAlgorithm::Gzip,
        "topic updated",
    )?;
    equal(
        client.get_topics(&id(STREAM)).await.during("topics")?.len(),
        1,
        "topics of the stream",
    )?;
    client
        .create_partitions(&id(STREAM), &id(TOPIC), 2)
        .await
        .during("create partitions")?;
    client
        .delete_partitions(&id(STREAM), &id(TOPIC), 1)
        .await
        .during("delete partitions")?;
    let topic = client
        .get_topic(&id(STREAM), &id(TOPIC))
        .await
        .during("get topic")?
        .ok_or("the topic is gone")?;
    equal(topic.partitions_count, 4, "partitions added and deleted")
}

fn text(payload: &str) -> IggyMessage {
    IggyMessage::builder()
        .payload(Bytes::from(payload.to_owned()))
        .build()
        .expect("a valid message")
}

async fn offsets_and_polls(client: &IggyClient) -> Outcome {
    let (stream, topic) = (id(STREAM), id(TOPIC));
    let consumer = Consumer::new(id("walker"));
    expect(
        client
            .get_consumer_offset(&consumer, &stream, &topic, Some(0))
            .await
            .during("get offset")?
            .is_none(),
        "no stored offset",
    )?;
    refused(
        client
            .store_consumer_offset(&consumer, &stream, &topic, Some(0), 5)
            .await,
        4100,
        "offset store on an empty partition",
    )?;
    for base in [0u64, 5] {
        let mut batch: Vec<IggyMessage> = (0..5).map(|i| text(&format!("m{}", base + i))).collect();
        let reply = client
            .send_messages(&stream, &topic, &Partitioning::partition_id(0), &mut batch)
            .await
            .during("send")?;
        equal(
            reply.confirmations.iter().map(|c| c.base_offset).collect::<Vec<_>>(),
            vec![base],
            "send confirmed with its base offset",
        )?;
    }
    client
        .store_consumer_offset(&consumer, &stream, &topic, Some(0), 3)
        .await
        .during("store offset")?;
    let stored = client
        .get_consumer_offset(&consumer, &stream, &topic, Some(0))
        .await
        .during("get offset")?
        .ok_or("no offset")?;
    equal((stored.current_offset, stored.stored_offset), (9, 3), "offset stored")?;

    let cases: [(&str, PollingStrategy, u32, bool, Vec<u64>); 6] = [
        ("next with auto-commit", PollingStrategy::next(), 2, true, vec![4, 5]),
        ("next again", PollingStrategy::next(), 2, false, vec![6, 7]),
        ("first", PollingStrategy::first(), 3, false, vec![0, 1, 2]),
        ("last", PollingStrategy::last(), 3, false, vec![7, 8, 9]),
        ("offset inside a batch", PollingStrategy::offset(4), 3, false, vec![4, 5, 6]),
        ("beyond the end", PollingStrategy::offset(10), 3, false, vec![]),
    ];
    for (name, strategy, count, auto_commit, wanted) in cases {
        let polled = client
            .poll_messages(&stream, &topic, Some(0), &consumer, &strategy, count, auto_commit)
            .await
            .during(name)?;
        let offsets: Vec<u64> = polled.messages.iter().map(|m| m.header.offset).collect();
        equal(offsets, wanted, name)?;
    }
    client
        .delete_consumer_offset(&consumer, &stream, &topic, Some(0))
        .await
        .during("delete offset")?;
    refused(
        client
            .delete_consumer_offset(&consumer, &stream, &topic, Some(0))
            .await,
        3021,
        "no offset to delete",
    )?;
    refused(
        client
            .poll_messages(&stream, &topic, Some(99), &consumer, &PollingStrategy::first(), 1, false)
            .await
            .map(|p| p.count),
        3007,
        "missing partition",
    )?;
    for (name, partitioning) in [
        ("balanced", Partitioning::balanced()),
        ("by key", Partitioning::messages_key_str("order-1").during("key")?),
    ] {
        let reply = client
            .send_messages(&stream, &topic, &partitioning, &mut [text("y")])
            .await
            .during(name)?;
        expect(reply.confirmations[0].partition_id < 4, format!("send {name}"))?;
    }
    Ok(())
}

fn payload(index: u64) -> Bytes {
    let size = SIZES[(index % SIZES.len() as u64) as usize];
    let mut state = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect::<Vec<u8>>()
        .into()
}

fn headers(index: u64) -> Option<BTreeMap<HeaderKey, HeaderValue>> {
    (index % 3 == 0).then(|| {
        BTreeMap::from([
            (
                HeaderKey::try_from("index").expect("a valid key"),
                HeaderValue::from(index),
            ),
            (
                HeaderKey::try_from("kind").expect("a valid key"),
                HeaderValue::try_from(format!("kind-{}", index % 10)).expect("a valid value"),
            ),
        ])
    })
}

async fn bulk(client: &IggyClient, total: u64) -> Outcome {
    let (stream, topic) = (id(STREAM), id("bulk"));
    let options = TopicCreateOptions {
        partitions_count: Some(1),
        ..Default::default()
    };
    client
        .create_topic(&stream, "bulk", &options)
        .await
        .during("create topic")?;
    let started = Instant::now();
    let mut base = 0;
    while base < total {
        let end = (base + 1000).min(total);
        let mut batch = Vec::with_capacity(1000);
        for index in base..end {
            let message = IggyMessage::builder()
                .id(u128::from(index) + 1)
                .payload(payload(index))
                .maybe_user_headers(headers(index))
                .build()
                .during("build a message")?;
            batch.push(message);
        }
        client
            .send_messages(&stream, &topic, &Partitioning::partition_id(0), &mut batch)
            .await
            .during("send")?;
        base = end;
    }
    let produced = Instant::now();
    let consumer = Consumer::new(id("bulk"));
    let mut next = 0;
    while next < total {
        let polled = client
            .poll_messages(
                &stream,
                &topic,
                Some(0),
                &consumer,
                &PollingStrategy::offset(next),
                1777,
                false,
            )
            .await
            .during("poll")?;
        if polled.messages.is_empty() {
            return Err(format!("poll stopped at {next} of {total}"));
        }
        for message in &polled.messages {
            let same = message.header.offset == next
                && message.header.id == u128::from(next) + 1
                && message.payload == payload(next)
                && message.user_headers_map().during("headers")? == headers(next);
            if !same {
                return Err(format!("message {next} came back altered: {message:?}"));
            }
            next += 1;
        }
    }
    ok(format!(
        "{total} messages sent in {:.1?}, polled equal in {:.1?}",
        produced - started,
        produced.elapsed()
    ));
    Ok(())
}

async fn producer_and_consumer(client: &IggyClient) -> Outcome {
    let producer = client
        .producer(STREAM, TOPIC)
        .during("producer")?
        .partitioning(Partitioning::partition_id(3))
        .build();
    producer.init().await.during("init producer")?;
    for index in 0..50 {
        producer
            .send(vec![text(&format!("high-level {index}"))])
            .await
            .during("producer send")?;
    }
    let consumer = Consumer::new(id("high-level"));
    let polled = client
        .poll_messages(
            &id(STREAM),
            &id(TOPIC),
            Some(3),
            &consumer,
            &PollingStrategy::last(),
            50,
            true,
        )
        .await
        .during("poll")?;
    let texts: Vec<Bytes> = polled.messages.iter().map(|m| m.payload.clone()).collect();
    let wanted: Vec<Bytes> = (0..50).map(|i| Bytes::from(format!("high-level {i}"))).collect();
    equal(texts, wanted, "the high-level producer's messages, in order")
}

async fn unavailable(client: &IggyClient) -> Outcome {
    let (stream, topic) = (id(STREAM), id(TOPIC));
    refused(client.get_users().await, 5, "users")?;
    refused(
        client
            .create_user("someone", "secret", UserStatus::Active, None)
            .await,
        5,
        "create user",
    )?;
    refused(client.get_personal_access_tokens().await, 5, "tokens")?;
    refused(
        client.create_consumer_group(&stream, &topic, "g").await,
        5,
        "create consumer group",
    )?;
    refused(
        client.get_consumer_groups(&stream, &topic).await,
        5,
        "consumer groups",
    )?;
    refused(client.purge_topic(&stream, &topic).await, 5, "purge topic")?;
    refused(client.purge_stream(&stream).await, 5, "purge stream")?;
    refused(
        client.delete_segments(&stream, &topic, 0, 1).await,
        5,
        "delete segments",
    )?;
    refused(
        client.flush_unsaved_buffer(&stream, &topic, 0, true).await,
        5,
        "flush",
    )
}

async fn cleanup(client: &IggyClient) -> Outcome {
    client
        .delete_topic(&id(STREAM), &id("bulk"))
        .await
        .during("delete topic")?;
    client.delete_stream(&id(STREAM)).await.during("delete stream")?;
    expect(
        client.get_stream(&id(STREAM)).await.during("get stream")?.is_none(),
        "stream deleted",
    )?;
    client.logout_user().await.during("logout")?;
    refused(client.get_streams().await, 40, "streams after logout")?;
    client.shutdown().await.during("shutdown")
}
