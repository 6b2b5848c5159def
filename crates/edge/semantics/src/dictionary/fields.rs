//! The fields of compression dictionaries.

use http::header::HeaderName;

/// The field `Use-As-Dictionary` of responses (§2.1).
pub static USE_AS_DICTIONARY: HeaderName = HeaderName::from_static("use-as-dictionary");

/// The field `Available-Dictionary` of requests (§2.2).
pub static AVAILABLE_DICTIONARY: HeaderName = HeaderName::from_static("available-dictionary");

/// The field `Dictionary-ID` of requests (§2.3).
pub static DICTIONARY_ID: HeaderName = HeaderName::from_static("dictionary-id");

/// The SHA-256 of a dictionary, without any content coding.
pub type DictionaryHash = [u8; 32];
