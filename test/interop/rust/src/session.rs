//! A signed-in client of a cluster, and where its session is.

use iggy::prelude::*;

/// Connects and signs in with the released client's own defaults: it looks for the leader after the sign-in, remembers the
/// roster, and keeps the credentials for the connections that follow.
pub async fn connect(address: &str) -> Result<IggyClient, String> {
    let client = IggyClient::from_connection_string(&format!("iggy+tcp://iggy:iggy@{address}"))
        .map_err(|error| format!("build the client: {error}"))?;
    client
        .connect()
        .await
        .map_err(|error| format!("connect to {address}: {error} (code {})", error.as_code()))?;
    Ok(client)
}

/// The address of the node that the session is on.
pub async fn place(client: &IggyClient) -> String {
    client.get_connection_info().await.server_address
}

/// Splits "stream/topic".
pub fn topic(name: &str) -> Result<(Identifier, Identifier), String> {
    let (stream, topic) = name
        .split_once('/')
        .ok_or_else(|| format!("a topic is STREAM/TOPIC, got {name:?}"))?;
    let id = |text: &str| Identifier::named(text).map_err(|error| format!("{text:?}: {error}"));
    Ok((id(stream)?, id(topic)?))
}
