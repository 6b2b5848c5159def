// Tests the client with a publisher in this process and clocks that only the test advances. `publisher.trouble` names
// the fault that the publisher injects, see FakePublisher. `publisher.pass(ms)` advances both clocks.
//
// The answer "ask" means that the filter is not fresh, so the caller must ask the service. The counter `failed`
// includes `refused`: data that the client did not accept.

import assert from "node:assert/strict";
import test from "node:test";

import { FilterClient } from "../src/index.js";
import { FakePublisher } from "../testing/publisher.js";

const TIMEOUT_MS = 180_000;

function follow(t, publisher, more) {
  const client = FilterClient.start(publisher.options(more));
  t.after(() => client.stop());
  return client;
}

/** Waits until the counter `name` has increased by `count`. */
function untilMore(client, count, name) {
  const before = client.status().counts[name];
  return client.waitUntil(TIMEOUT_MS, (status) => status.counts[name] >= before + count);
}

test("a client asks about every id until its filter is loaded, and then skips absent ids", async (t) => {
  const publisher = new FakePublisher();
  const client = follow(t, publisher);
  assert.equal(client.answer(7), "ask");
  assert.ok(await client.waitFresh(TIMEOUT_MS));
  assert.equal(client.answer(7), "maybe");
  assert.equal(client.answer("1001"), "maybe", "the id is in the delta");
  const skipped = Array.from({ length: 200 }, (_, n) => client.answer(5000 + n)).filter((a) => a === "absent");
  assert.ok(skipped.length > 180, `${skipped.length} of 200 absent ids are skipped, with 3 % false positives`);
  assert.equal(client.mayExist(7), true);
  assert.equal(client.status().facts.ids, 1000);
  assert.equal(client.status().overlayIds, 3);
});

test("a client without publisher asks about every id after max_staleness, not before", async (t) => {
  const publisher = new FakePublisher();
  const client = follow(t, publisher);
  assert.ok(await client.waitFresh(TIMEOUT_MS));
  const absent = Array.from({ length: 100 }, (_, n) => 5000 + n).find((n) => client.answer(n) === "absent");
  publisher.trouble = "dead";
  assert.ok(await untilMore(client, 1, "failed"));
  // A proof keeps the filter fresh for maxStalenessMs (3,000 ms), minus 100 ms for the jitter of the clocks.
  const left = client.status().freshForMs;
  assert.ok(left > 0 && left <= 2_900, `${left} ms`);
  publisher.pass(left);
  assert.equal(client.answer(absent), "absent", "at the deadline");
  publisher.pass(1);
  assert.equal(client.answer(absent), "ask", "after the deadline");
  publisher.trouble = null;
  assert.ok(await client.waitFresh(TIMEOUT_MS), "the filter is fresh again when the publisher responds");
  assert.equal(client.answer(absent), "absent");
});

test("wall clocks that are stepped back do not extend the deadline", async (t) => {
  const publisher = new FakePublisher();
  const client = follow(t, publisher);
  assert.ok(await client.waitFresh(TIMEOUT_MS));
  publisher.trouble = "dead";
  assert.ok(await untilMore(client, 1, "failed"));
  publisher.now.wallMs -= 3_600_000;
  publisher.now.monotonicMs += 3_001;
  assert.equal(client.status().fresh, false);
});

for (const trouble of ["forged", "old"]) {
  test(`${trouble} data is refused and the last valid filter stays`, async (t) => {
    const publisher = new FakePublisher();
    const client = follow(t, publisher);
    assert.ok(await client.waitFresh(TIMEOUT_MS));
    publisher.trouble = trouble;
    assert.ok(await untilMore(client, 2, "refused"));
    assert.equal(client.status().serial, 1000n);
    assert.equal(client.answer(7), "maybe");
    assert.equal(client.status().facts.epoch, 7n);
    publisher.pass(10_000);
    assert.equal(client.answer(5001), "ask", "the filter becomes stale");
  });
}

for (const trouble of ["cut", "flipped", "flood"]) {
  test(`a ${trouble} snapshot is refused, and a later valid one is used`, async (t) => {
    const publisher = new FakePublisher();
    publisher.trouble = trouble;
    const client = follow(t, publisher);
    assert.ok(await untilMore(client, 2, "failed"));
    assert.equal(client.status().facts, null);
    assert.ok(client.status().counts.bytes < 10_000_000, "the client stops reading the flood");
    publisher.trouble = null;
    assert.ok(await client.waitFresh(TIMEOUT_MS));
  });
}

test("a listener that throws does not stop the client", async (t) => {
  const publisher = new FakePublisher();
  publisher.trouble = "dead";
  let errorCount = 0;
  const onError = () => {
    errorCount += 1;
    throw new Error("not listening");
  };
  const client = follow(t, publisher, { onError });
  assert.ok(await client.waitUntil(TIMEOUT_MS, () => errorCount >= 2));
  publisher.trouble = null;
  assert.ok(await client.waitFresh(TIMEOUT_MS));
});

test("a snapshot larger than allowed is not fetched", async (t) => {
  const publisher = new FakePublisher();
  const client = follow(t, publisher, { snapshotBytesMax: 1_000 });
  assert.ok(await client.waitUntil(TIMEOUT_MS, (status) => status.counts.polls >= 3));
  assert.ok(publisher.requests.every((url) => !url.includes("/snapshot/")));
  assert.equal(client.answer(5001), "ask");
});

test("with a guaranteed clock error, a manifest proves its freshness by its date, without a challenge", async (t) => {
  const publisher = new FakePublisher();
  const client = follow(t, publisher, { clockErrorMs: 200 });
  assert.ok(await client.waitFresh(TIMEOUT_MS));
  assert.equal(client.status().counts.proofs, 0);
  assert.equal(client.answer(7), "maybe");
});

test("wrong options are refused with a hint", () => {
  const good = { url: "http://a/sets/b", keys: ["00".repeat(32)], maxStalenessMs: 1 };
  for (const [wrong, hint] of [
    [{ ...good, keys: [] }, /public keys/],
    [{ ...good, keys: undefined }, /trustTransport/],
    [{ ...good, maxStalenessMs: 0 }, /maxStalenessMs/],
    [{ ...good, url: "http://a/" }, /sets\/NAME/],
    [{ ...good, url: "http://a/sets/b?c" }, /sets\/NAME/],
    [{ ...good, url: "ftp://a/sets/b" }, /sets\/NAME/],
  ]) {
    assert.throws(() => new FilterClient(wrong), hint);
  }
});
