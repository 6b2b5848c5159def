use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::cache::slices::Slices;
use crate::cache::stored::DiskPlan;

fn policy() -> impl Strategy<Value = StoredPolicy> {
    (any::<[u64; 6]>(), any::<[bool; 4]>()).prop_map(|(numbers, flags)| StoredPolicy {
        response_time: Timestamp::from_millis(numbers[0]),
        initial_age_ms: numbers[1],
        lifetime_ms: numbers[2],
        fresh_until: Timestamp::from_millis(numbers[3]),
        stale_while_revalidate_until: Timestamp::from_millis(numbers[4]),
        stale_if_error_until: Timestamp::from_millis(numbers[5]),
        no_cache: flags[0],
        forbids_stale: flags[1],
        has_validator: flags[2],
        stale_if_error_of_operator: flags[3],
    })
}

fn head() -> impl Strategy<Value = HeaderMap> {
    let field = ("[a-z][a-z0-9-]{0,12}", "[!-~]{0,20}");
    proptest::collection::vec(field, 0..8).prop_map(|fields| {
        let mut head = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            head.append(name, value.parse().expect("a value"));
        }
        head
    })
}

proptest! {
    /// Method: write a head, parse it and compare. Then write it again from the header block for memory.
    #[test]
    fn a_response_parses_to_what_was_written(
        status in 200_u16..600,
        policy in policy(),
        head in head(),
        length: u64,
        stamps: [u64; 2],
        generation: u64,
    ) {
        let status = StatusCode::from_u16(status).expect("a status");
        let [stamp, other] = stamps.map(Stamp);
        let generation = NonZeroU64::new(generation);
        let bytes = write_response(status, &policy, stamp, &head, generation);
        let parsed = parse(&bytes);
        let Ok(DiskHead::Response { status: s, policy: p, stamp: parsed, fields, slices, generation: g }) = parsed
        else {
            panic!("it parses");
        };
        prop_assert_eq!((s, p, parsed, slices, g), (status, policy, stamp, None, generation));
        let predicted_bytes = block_bytes(status, &fields, length);
        let head = block(status, &fields, length);
        prop_assert_eq!(head.len(), predicted_bytes);
        let body = StoredBody::Memory(Bytes::new());
        let mut response = StoredResponse { policy, status, head, body, generation, disk_plan: DiskPlan::Decide };
        prop_assert_eq!(&write_block(&response, stamp), &bytes);
        prop_assert!(is_same_response(&write_block(&response, other), &bytes));
        let slicing = Slicing { complete_length: length, slice_bytes: 1 << 20 };
        let sliced = StoredResponse {
            body: StoredBody::Slices(Arc::new(Slices::new(slicing, length ^ 5))),
            ..response.clone()
        };
        let bytes_of_sliced = write_block(&sliced, stamp);
        let Ok(DiskHead::Response { fields, slices, .. }) = parse(&bytes_of_sliced) else {
            panic!("it parses");
        };
        prop_assert_eq!(slices, Some(SlicesOnDisk { slicing, generation: length ^ 5 }));
        prop_assert_eq!(&block(status, &fields, length), &response.head);
        prop_assert!(!is_same_response(&bytes_of_sliced, &bytes));
        prop_assert!(is_same_response(&write_block(&sliced, other), &bytes_of_sliced));
        response.policy.lifetime_ms ^= 1;
        prop_assert!(!is_same_response(&write_block(&response, stamp), &bytes));
    }

    /// Method: cut a head within its fixed part (an error). Then change one byte (an error or a valid head).
    #[test]
    fn bytes_that_are_not_a_head_are_refused(policy in policy(), head in head(), at: usize, with: u8) {
        let whole = write_response(StatusCode::OK, &policy, Stamp(7), &head, NonZeroU64::new(at as u64 % 2));
        for end in 0..whole.len().min(RESPONSE_FIXED_BYTES) {
            prop_assert!(parse(&whole.slice(..end)).is_err());
        }
        let mut changed = whole.to_vec();
        let at = at % changed.len();
        changed[at] = with;
        if let Ok(DiskHead::Response { status, policy, fields, .. }) = parse(&changed.into()) {
            let response = StoredResponse {
                policy,
                status,
                head: block(status, &fields, 5),
                body: StoredBody::Memory(Bytes::from_static(b"hello")),
                generation: None,
                disk_plan: DiskPlan::Decide,
            };
            prop_assert!(response.headers().len() <= head.len() + 1);
        }
    }

    #[test]
    fn a_marker_parses_to_its_fields(
        names in proptest::collection::btree_set("[a-z][a-z0-9-]{0,12}", 1..20),
        generation: u64,
    ) {
        let names = names.iter().map(|name| HeaderName::from_bytes(name.as_bytes()).expect("a name"));
        let names: Vec<_> = names.collect();
        let fields = VaryFields::from_names(names).expect("not empty");
        let bytes = write_varies(&fields, generation);
        prop_assert_eq!(parse(&bytes), Ok(DiskHead::Varies { fields, generation }));
    }

    #[test]
    fn a_marker_of_a_path_parses_to_its_rule(
        names in proptest::collection::vec("\\PC{0,6}", 0..20),
        lists_significant: bool,
        ignores_order: bool,
        generation: u64,
        at: usize,
    ) {
        let rule = NoVarySearch::from_names(names, lists_significant, ignores_order);
        let Some(rule) = rule else { return Ok(()) };
        let bytes = write_path_rule(&rule, generation);
        prop_assert_eq!(parse(&bytes), Ok(DiskHead::PathRule { rule: rule.clone(), generation }));
        let cut = parse(&bytes.slice(..at % bytes.len()));
        prop_assert_ne!(cut, Ok(DiskHead::PathRule { rule, generation }));
    }
}

/// Later releases of the edge must parse heads of both versions, so their bytes must not change.
#[test]
fn the_bytes_of_versions_1_and_2_are_fixed() {
    let policy = StoredPolicy {
        response_time: Timestamp::from_millis(1),
        initial_age_ms: 2,
        lifetime_ms: 3,
        fresh_until: Timestamp::from_millis(4),
        stale_while_revalidate_until: Timestamp::from_millis(5),
        stale_if_error_until: Timestamp::from_millis(6),
        no_cache: false,
        forbids_stale: true,
        has_validator: true,
        stale_if_error_of_operator: false,
    };
    let mut head = HeaderMap::new();
    head.insert("etag", HeaderValue::from_static("\"a\""));
    head.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
    let bytes = write_response(StatusCode::NOT_FOUND, &policy, Stamp(7), &head, None);
    let mut expected = vec![2, 1, 0x94, 0x01, 6, 0, 0, 0];
    for number in 1_u8..=7 {
        expected.extend_from_slice(&[number, 0, 0, 0, 0, 0, 0, 0]);
    }
    let mut encodable = expected.clone();
    encodable[1] = 5;
    encodable.extend_from_slice(&[8, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(b"etag: \"a\"\r\n");
    assert_eq!(&bytes[..], expected);
    encodable.extend_from_slice(b"etag: \"a\"\r\n");
    let generation = NonZeroU64::new(8);
    let bytes = write_response(StatusCode::NOT_FOUND, &policy, Stamp(7), &head, generation);
    assert_eq!(&bytes[..], encodable);
    encodable[RESPONSE_FIXED_BYTES] = 0;
    let parsed = parse(&Bytes::from(encodable));
    assert_eq!(parsed, Err(DiskHeadError::Generation));
    let mut version_1 = expected;
    version_1[0] = 1;
    version_1.drain(STAMP_AT..RESPONSE_FIXED_BYTES);
    let fields = Bytes::from_static(b"etag: \"a\"\r\n");
    let (status, stamp) = (StatusCode::NOT_FOUND, Stamp::NONE);
    let parsed = DiskHead::Response {
        status,
        policy,
        stamp,
        fields,
        slices: None,
        generation: None,
    };
    assert_eq!(parse(&Bytes::from(version_1)), Ok(parsed));
}
