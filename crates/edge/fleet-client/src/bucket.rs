//! The bucket with the heartbeats of a fleet's nodes, in NATS JetStream.

use async_nats::jetstream::context::KeyValueErrorKind;
use async_nats::jetstream::kv::{Operation, Store};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use bytes::Bytes;
use edgeward_fleet::RECORD_BYTES_MAX;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use crate::connect;
use crate::settings::{MemberSettings, NatsSettings};

/// A change of the bucket.
#[derive(Debug)]
pub(crate) enum BucketEvent {
    /// The bucket is watched. Its records follow.
    Watching,
    /// A node has written its record.
    Put { key: String, value: Bytes },
    /// A node has deleted its record.
    Deleted { key: String },
    /// All records that the bucket had are delivered.
    All,
}

/// A change that this node makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BucketWrite {
    Put { key: String, value: Vec<u8> },
    Delete { key: String },
}

impl BucketWrite {
    pub(crate) fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// The error of a task. The text is for logs only.
type TaskError = Box<dyn std::error::Error + Send + Sync>;

/// A handle of the bucket.
#[derive(Debug)]
pub(crate) struct Bucket(Store);

/// Begins to connect, and sends the errors that the server reports, such as a lack of permissions, to `errors`. Returns
/// at once; the client connects again by itself.
pub(crate) async fn start(
    settings: &NatsSettings,
    errors: mpsc::Sender<Result<(), String>>,
) -> Result<Context, TaskError> {
    // The follower of the purges logs the other errors of a connection.
    let options = connect::options(settings).event_callback(move |event| {
        let errors = errors.clone();
        async move {
            let report = match event {
                async_nats::Event::Connected => Ok(()),
                async_nats::Event::ServerError(error) => Err(error.to_string()),
                _ => return,
            };
            _ = errors.send(report).await;
        }
    });
    let client = options.connect(&settings.servers).await?;
    let mut context = jetstream::new(client);
    context.set_timeout(connect::REQUEST_TIMEOUT);
    Ok(context)
}

impl Bucket {
    /// Opens the bucket. Creates it if it does not exist.
    pub(crate) async fn open(
        context: &Context,
        settings: &NatsSettings,
        members: &MemberSettings,
    ) -> Result<Self, TaskError> {
        let name = format!("{}-members", settings.stream);
        match context.get_key_value(&name).await {
            Ok(store) => return Ok(Self(store)),
            Err(error) if error.kind() == KeyValueErrorKind::GetBucket => {}
            Err(error) => return Err(error.into()),
        }
        // `create_key_value` of the client cannot parse the account of servers before 2.10, so the stream of the bucket
        // is created here. Records are written again within seconds, so they need no disk. A server that has lost the
        // bucket gets a new one.
        let config = Config {
            name: format!("KV_{name}"),
            subjects: vec![format!("$KV.{name}.>")],
            description: Some("members of an edgeward fleet".to_owned()),
            max_messages_per_subject: 1,
            max_age: members.lasts,
            max_message_size: RECORD_BYTES_MAX as i32,
            max_bytes: BUCKET_BYTES_MAX,
            discard: DiscardPolicy::New,
            storage: StorageType::Memory,
            num_replicas: settings.replicas as usize,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            ..Config::default()
        };
        context.create_stream(config).await?;
        Ok(Self(context.get_key_value(&name).await?))
    }

    /// Sends the records of the bucket and all changes to `events`. Returns when the watch fails or its receiver is
    /// dropped.
    pub(crate) async fn watch(&self, events: mpsc::Sender<BucketEvent>) -> Result<(), TaskError> {
        let mut watch = self.0.watch_with_history(">").await?;
        let mut has_all = false;
        if events.send(BucketEvent::Watching).await.is_err() {
            return Ok(());
        }
        // The watch reports the end of the records with the last one, and an empty bucket has none. The state is read
        // after the watch was made: a record that arrives between both is delivered as the last one.
        let info = self.0.stream.get_info().await?;
        if info.state.messages == 0 && events.send(BucketEvent::All).await.is_err() {
            return Ok(());
        }
        while let Some(entry) = watch.next().await {
            let entry = entry?;
            let key = entry.key;
            let event = match entry.operation {
                Operation::Put => BucketEvent::Put {
                    key,
                    value: entry.value,
                },
                Operation::Delete | Operation::Purge => BucketEvent::Deleted { key },
            };
            let is_last =
                entry.seen_current && !std::mem::replace(&mut has_all, entry.seen_current);
            if events.send(event).await.is_err()
                || (is_last && events.send(BucketEvent::All).await.is_err())
            {
                break;
            }
        }
        Ok(())
    }

    /// Writes a record or deletes it.
    pub(crate) async fn write(&self, write: BucketWrite) -> Result<(), TaskError> {
        match write {
            BucketWrite::Put { key, value } => _ = self.0.put(key, value.into()).await?,
            BucketWrite::Delete { key } => self.0.delete(key).await?,
        }
        Ok(())
    }
}

/// The size of the bucket: four times that of 256 records of the maximum length.
const BUCKET_BYTES_MAX: i64 = 4 * 256 * RECORD_BYTES_MAX as i64;
