"""Walks every command that a Whippet node serves with the released Python client, unmodified.

Usage: walk.py HOST:PORT [--messages N]

Prints one line per step and exits with 1 at the first step whose result is not what the protocol promises. Commands
that the Python client has no method for go out through its raw request call, so that framing, session and checksums
are still the released client's own.
"""

import argparse
import asyncio
import hashlib
import os
import random
import struct
import sys
import time

from apache_iggy import (
    Consumer,
    Durability,
    HeaderKey,
    HeaderValue,
    IggyClient,
    IggyExpiry,
    MaxTopicSize,
    Partitioning,
    PollingStrategy,
    SendMessage,
)

# Command codes of the public protocol that have no method in this client.
GET_CLUSTER_METADATA = 12
GET_ME = 20
GET_CLIENT = 21
GET_CLIENTS = 22
GET_POLL_ROUTING = 103
GET_CONSUMER_OFFSET = 120
STORE_CONSUMER_OFFSET = 121
DELETE_CONSUMER_OFFSET = 122
CAPABILITIES = 9000

SIZES = [1, 2, 7, 48, 100, 255, 256, 1000, 1024, 4096, 9000]


def step(text):
    print(f"ok    {text}", flush=True)


def expect(condition, text):
    if not condition:
        print(f"FAIL  {text}", flush=True)
        sys.exit(1)
    step(text)


async def expect_error(awaitable, fragment, text):
    try:
        result = await awaitable
    except Exception as error:  # the client raises plain RuntimeError
        expect(fragment.lower() in str(error).lower(), f"{text}: {error}")
        return
    expect(False, f"{text}: no error, got {result!r}")


def identifier(value):
    if isinstance(value, int):
        return struct.pack("<BBI", 1, 4, value)
    raw = value.encode()
    return struct.pack("<BB", 2, len(raw)) + raw


def offset_key(consumer, stream, topic, partition):
    return (
        struct.pack("<B", 1)
        + identifier(consumer)
        + identifier(stream)
        + identifier(topic)
        + struct.pack("<BI", 1, partition)
    )


def make_message(index, rng):
    size = SIZES[index % len(SIZES)]
    payload = rng.randbytes(size)
    headers = None
    if index % 3 == 0:
        headers = {
            HeaderKey.String("index"): HeaderValue.UnsignedInt64(index),
            HeaderKey.String("kind"): HeaderValue.String(f"kind-{index % 10}"),
            HeaderKey.String("raw"): HeaderValue.Raw(payload[:16]),
        }
    return payload, headers


async def poll(client, partition, strategy, count, auto_commit=False, consumer="walker"):
    return await client.poll_messages(
        "orders",
        "events",
        partition_id=partition,
        consumer=Consumer.Single(consumer),
        polling_strategy=strategy,
        count=count,
        auto_commit=auto_commit,
    )


async def walk_system(address):
    client = IggyClient(address)
    await client.connect()
    await client.ping()
    step("ping before login")
    await expect_error(client.get_stats(), "unauthenticated", "stats before login")
    await expect_error(
        client.login_user("iggy", "not the password"), "credentials", "wrong password"
    )
    await client.login_user("iggy", "iggy")
    step("login after a refused login")
    stats = await client.get_stats()
    expect(stats.process_id > 0 and stats.clients_count >= 1, f"stats: pid {stats.process_id}")
    options = await client.describe_options("topic")
    expect(len(options) == 9, f"topic options: {[o.key for o in options]}")
    expect(await client.describe_options("stream") == [], "stream options are empty")
    expect(await client.describe_options("user") == [], "user options are empty")

    roster = await client.send_binary_request(GET_CLUSTER_METADATA, b"")
    expect(len(roster) > 8, "cluster metadata")
    me = await client.send_binary_request(GET_ME, b"")
    expect(me[8] == 1, "me: transport is TCP")
    other = await client.send_binary_request(GET_CLIENT, me[0:4])
    expect(other[:9] == me[:9], "client by id equals me")
    clients = await client.send_binary_request(GET_CLIENTS, b"")
    expect(len(clients) >= len(me) - 4, "clients")
    capabilities = await client.send_binary_request(CAPABILITIES, struct.pack("<IQ", 1, 0))
    expect(struct.unpack_from("<I", capabilities)[0] == 1, "capabilities")
    await expect_error(client.send_binary_request(60000, b""), "invalid", "unknown command")
    return client


async def walk_catalog(client):
    expect(await client.get_streams() == [], "no streams on a fresh node")
    await client.create_stream("first")
    await expect_error(client.create_stream("first"), "already exists", "stream name taken")
    stream = await client.get_stream(0)
    expect(stream.id == 0 and stream.name == "first", "stream by id")
    expect((await client.get_stream("first")).id == 0, "stream by name")
    expect(await client.get_stream("missing") is None, "missing stream is none")
    await client.update_stream(0, "orders")
    expect((await client.get_stream(0)).name == "orders", "renamed stream")

    await client.create_topic("orders", "first", 3, durability=Durability.REPLICATED)
    await expect_error(
        client.create_topic("orders", "first", 1), "already exists", "topic name taken"
    )
    topic = await client.get_topic("orders", "first")
    expect(
        topic.id == 0 and topic.partitions_count == 3 and [p.id for p in topic.partitions] == [0, 1, 2],
        "topic with its partitions",
    )
    expect(
        all(p.segments_count == 1 and p.current_offset == 0 and p.size == 0 for p in topic.partitions),
        "fresh partitions: one segment, offset 0, size 0",
    )
    await client.update_topic(
        "orders",
        "first",
        "events",
        compression_algorithm="gzip",
        message_expiry=IggyExpiry.NeverExpire(),
        max_topic_size=MaxTopicSize.Unlimited(),
    )
    topic = await client.get_topic(0, "events")
    expect(topic.name == "events" and topic.compression_algorithm.lower() == "gzip", "updated topic")
    expect(await client.get_topic("orders", "missing") is None, "missing topic is none")
    expect(len(await client.get_topics("orders")) == 1, "topics of the stream")
    expect(await client.get_topics("missing") == [], "topics of a missing stream: none")
    await client.create_partitions("orders", "events", 2)
    expect((await client.get_topic(0, 0)).partitions_count == 5, "partitions added")
    await client.delete_partitions("orders", "events", 1)
    expect((await client.get_topic(0, 0)).partitions_count == 4, "a partition deleted")
    await expect_error(
        client.create_topic("orders", "wide", 1001), "partitions", "1001 partitions refused"
    )


async def walk_offsets(client):
    key = offset_key("walker", "orders", "events", 0)
    expect(await client.send_binary_request(GET_CONSUMER_OFFSET, key) == b"", "no stored offset")
    await expect_error(
        client.send_binary_request(STORE_CONSUMER_OFFSET, key + struct.pack("<QB", 5, 1)),
        "offset",
        "offset store on an empty partition",
    )
    for partitioning in (0, Partitioning.partition_id(0)):
        reply = await client.send_messages("orders", "events", partitioning, [SendMessage("x")] * 5)
        expect(len(reply.confirmations) == 1, f"confirmed with base offset {reply.confirmations[0].base_offset}")
    await client.send_binary_request(STORE_CONSUMER_OFFSET, key + struct.pack("<QB", 3, 1))
    stored = await client.send_binary_request(GET_CONSUMER_OFFSET, key)
    expect(struct.unpack("<IQQ", stored) == (0, 9, 3), "stored offset")
    messages = await poll(client, 0, PollingStrategy.Next(), 2, auto_commit=True)
    expect([m.offset() for m in messages] == [4, 5], "next continues behind the stored offset")
    stored = await client.send_binary_request(GET_CONSUMER_OFFSET, key)
    expect(struct.unpack("<IQQ", stored) == (0, 9, 5), "auto-commit stored the last offset")
    await client.send_binary_request(DELETE_CONSUMER_OFFSET, key + struct.pack("<B", 1))
    expect(await client.send_binary_request(GET_CONSUMER_OFFSET, key) == b"", "offset deleted")
    await expect_error(
        client.send_binary_request(DELETE_CONSUMER_OFFSET, key + struct.pack("<B", 1)),
        "offset",
        "no offset to delete",
    )
    routing = key + struct.pack("<BQIB", 5, 0, 1, 1)
    route = await client.send_binary_request(GET_POLL_ROUTING, routing)
    expect(len(route) > 32, "poll routing names a node")


async def walk_polls(client):
    first = await poll(client, 0, PollingStrategy.First(), 3)
    expect([m.offset() for m in first] == [0, 1, 2], "first")
    last = await poll(client, 0, PollingStrategy.Last(), 3)
    expect([m.offset() for m in last] == [7, 8, 9], "last")
    middle = await poll(client, 0, PollingStrategy.Offset(4), 2)
    expect([m.offset() for m in middle] == [4, 5], "offset inside a batch")
    expect(await poll(client, 0, PollingStrategy.Offset(10), 5) == [], "beyond the end")
    at = middle[0].timestamp()
    by_time = await poll(client, 0, PollingStrategy.Timestamp(at), 100)
    expect(by_time and by_time[0].timestamp() >= at, "timestamp")
    future = int(time.time() * 1e6) + 3_600_000_000
    expect(await poll(client, 0, PollingStrategy.Timestamp(future), 5) == [], "future timestamp")
    await expect_error(poll(client, 99, PollingStrategy.First(), 1), "partition", "missing partition")
    for partitioning, text in (
        (Partitioning.balanced(), "balanced"),
        (Partitioning.messages_key("order-1"), "by key"),
    ):
        reply = await client.send_messages("orders", "events", partitioning, [SendMessage(b"y")])
        expect(reply.confirmations[0].partition_id < 4, f"send {text}")


async def walk_bulk(client, total):
    """Sends and polls `total` messages of mixed sizes with headers; the bytes that come back are equal."""
    await client.create_topic("orders", "bulk", 2)
    rng = random.Random(7)
    sent = [hashlib.sha256(), hashlib.sha256()]
    counts = [0, 0]
    started = time.monotonic()
    batch = 1000
    for base in range(0, total, batch):
        partition = (base // batch) % 2
        messages = []
        for index in range(base, min(base + batch, total)):
            payload, headers = make_message(index, rng)
            messages.append(SendMessage(payload, headers, id=index + 1))
            digest(sent[partition], index + 1, payload, header_items(index, payload))
        await client.send_messages("orders", "bulk", partition, messages)
        counts[partition] += len(messages)
    produced = time.monotonic()
    for partition in (0, 1):
        got = hashlib.sha256()
        offset = 0
        while offset < counts[partition]:
            polled = await client.poll_messages(
                "orders",
                "bulk",
                partition_id=partition,
                consumer=Consumer.Single("bulk"),
                polling_strategy=PollingStrategy.Offset(offset),
                count=1777,
                auto_commit=False,
            )
            if not polled:
                expect(False, f"poll stopped at {offset} of {counts[partition]}")
            for message in polled:
                if message.offset() != offset:
                    expect(False, f"offset {message.offset()} where {offset} was due")
                headers = message.user_headers()
                items = None if not headers else sorted((str(k), str(v)) for k, v in headers.items())
                digest(got, message.id(), message.payload(), items)
                offset += 1
        expect(
            got.digest() == sent[partition].digest(),
            f"partition {partition}: {counts[partition]} messages came back byte for byte",
        )
    consumed = time.monotonic()
    step(f"{total} messages sent in {produced - started:.1f} s, polled in {consumed - produced:.1f} s")


def header_items(index, payload):
    if index % 3 != 0:
        return None
    headers = {
        HeaderKey.String("index"): HeaderValue.UnsignedInt64(index),
        HeaderKey.String("kind"): HeaderValue.String(f"kind-{index % 10}"),
        HeaderKey.String("raw"): HeaderValue.Raw(payload[:16]),
    }
    return sorted((str(k), str(v)) for k, v in headers.items())


def digest(into, message_id, payload, items):
    into.update(struct.pack("<QI", message_id, len(payload)))
    into.update(payload)
    into.update(repr(items).encode())


async def walk_unavailable(client):
    for awaitable, text in (
        (client.get_users(), "users"),
        (client.create_user("someone", "secret"), "create user"),
        (client.get_consumer_groups("orders", "events"), "consumer groups"),
        (client.create_consumer_group("orders", "events", "g"), "create consumer group"),
        (client.purge_topic("orders", "events"), "purge topic"),
        (client.purge_stream("orders"), "purge stream"),
    ):
        await expect_error(awaitable, "feature is unavailable", f"{text} is not offered yet")


async def walk_cleanup(client):
    await client.delete_topic("orders", "bulk")
    await client.delete_topic("orders", "events")
    expect(await client.get_topics("orders") == [], "topics deleted")
    await client.delete_stream("orders")
    expect(await client.get_streams() == [], "stream deleted")
    await client.logout_user()
    await expect_error(client.get_streams(), "unauthenticated", "streams after logout")
    await client.login_user("iggy", "iggy")
    step("login after logout")


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--messages", type=int, default=100_000)
    arguments = parser.parse_args()
    client = await walk_system(arguments.address)
    await walk_catalog(client)
    await walk_offsets(client)
    await walk_polls(client)
    await walk_bulk(client, arguments.messages)
    await walk_unavailable(client)
    await walk_cleanup(client)
    print("python: every step passed", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
    # The released client's native threads outlive the loop, and in about three of ten runs they crash while the interpreter
    # takes itself apart. The verdict is in by now: only after success, the process ends without that. A step that fails
    # leaves by an exception or sys.exit above, and never gets here.
    sys.stdout.flush()
    os._exit(0)
