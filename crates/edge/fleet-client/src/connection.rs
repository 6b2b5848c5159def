//! The connection to NATS, and the requests to the stream. The driver runs each request in a task of its own.

use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::{DeliverPolicy, push};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use edgeward_fleet::StreamState;
use edgeward_types::xxh3::xxh3_64;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use crate::connect::{self, REQUEST_TIMEOUT};
use crate::settings::NatsSettings;

/// A report of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionReport {
    Up,
    Down,
    /// An attempt to connect has failed, or the server reports an error.
    Error(String),
}

/// A message of the stream.
#[derive(Debug)]
pub(crate) struct Delivered {
    pub(crate) sequence: u64,
    pub(crate) payload: Bytes,
}

/// The error of a task. The text is for logs only.
type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// A handle for requests to JetStream.
pub(crate) struct Connection {
    context: Context,
    stream: Config,
    subject: String,
}

impl Connection {
    /// Begins to connect, and reports the changes and errors of the connection. Returns at once; the client connects
    /// again by itself.
    pub(crate) async fn start(
        settings: &NatsSettings,
        reports: mpsc::Sender<ConnectionReport>,
    ) -> Result<Self, TaskError> {
        let options = connect::options(settings).event_callback(move |event| {
            let reports = reports.clone();
            async move {
                let report = match event {
                    async_nats::Event::Connected => ConnectionReport::Up,
                    async_nats::Event::Disconnected | async_nats::Event::Closed => {
                        ConnectionReport::Down
                    }
                    other => ConnectionReport::Error(other.to_string()),
                };
                _ = reports.send(report).await;
            }
        });
        let client = options.connect(&settings.servers).await?;
        let subject = format!("{}.purges", settings.stream);
        let mut context = jetstream::new(client);
        context.set_timeout(REQUEST_TIMEOUT);
        Ok(Self {
            context,
            stream: Config {
                name: settings.stream.clone(),
                subjects: vec![subject.clone()],
                description: Some("purges of an edgeward fleet".to_owned()),
                discard: DiscardPolicy::Old,
                storage: StorageType::File,
                num_replicas: settings.replicas as usize,
                max_age: settings.age_max,
                max_bytes: i64::try_from(settings.bytes_max).unwrap_or(i64::MAX),
                duplicate_window: DUPLICATE_WINDOW.min(settings.age_max),
                ..Config::default()
            },
            subject,
        })
    }

    /// Returns the state of the stream. Creates it if it does not exist.
    pub(crate) async fn state(&self) -> Result<StreamState, TaskError> {
        let stream = self
            .context
            .get_or_create_stream(self.stream.clone())
            .await?;
        let info = stream.cached_info();
        if !info.config.subjects.contains(&self.subject) {
            let (name, subject) = (&self.stream.name, &self.subject);
            let error = format!("the stream {name} exists and does not have the subject {subject}");
            return Err(error.into());
        }
        // A stream that is deleted and created again has another time.
        let created = info.created.unix_timestamp_nanos();
        Ok(StreamState {
            epoch: xxh3_64(&created.to_le_bytes()),
            first: info.state.first_sequence.max(1),
            last: info.state.last_sequence,
        })
    }

    /// Sends all messages from the sequence number `from` on to `deliveries`. Returns when the subscription fails or
    /// its receiver is dropped.
    pub(crate) async fn deliver(
        &self,
        from: u64,
        deliveries: mpsc::Sender<Delivered>,
    ) -> Result<(), TaskError> {
        let stream = self.context.get_stream_no_info(&self.stream.name).await?;
        let consumer = stream
            .create_consumer(push::OrderedConfig {
                deliver_subject: self.context.client().new_inbox(),
                filter_subject: self.subject.clone(),
                deliver_policy: DeliverPolicy::ByStartSequence {
                    start_sequence: from,
                },
                ..push::OrderedConfig::default()
            })
            .await?;
        let mut messages = consumer.messages().await?;
        while let Some(message) = messages.next().await {
            let message = message?;
            let sequence = message.info()?.stream_sequence;
            let payload = message.message.payload;
            let delivered = Delivered { sequence, payload };
            if deliveries.send(delivered).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Stores a message in the stream and returns its sequence number. A message with the same id is stored once.
    pub(crate) async fn publish(&self, id: &str, message: Bytes) -> Result<u64, TaskError> {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, id);
        let subject = self.subject.clone();
        let sent = self.context.publish_with_headers(subject, headers, message);
        Ok(sent.await?.await?.sequence)
    }
}

/// The time for which the stream remembers ids of messages, if its age allows.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
