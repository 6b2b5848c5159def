"""Tests with the golden files, which the clients in all languages must read in the same way.

The form of an id is `text`, `integer` or `uuid`.
"""

import hashlib
import json
import os
import unittest
import uuid

from common import line, seeded_random, spelling, vector, vectors
from edgeward_filter import Filter, FilterError, ManifestError, Refused, State, hash_id


class Vectors(unittest.TestCase):
    def test_hashes_of_all_lengths_and_spellings_match_the_format(self):
        for one in vectors("hashes.json"):
            found = hash_id(one["spelling"], one["form"], int(one["seed"]))
            self.assertEqual(f"{found:016x}", one["hash"], one)
            as_bytes = hash_id(one["spelling"].encode(), one["form"], int(one["seed"]))
            self.assertEqual(as_bytes, found, one)

    def test_filters_of_every_construction_answer_as_the_format_says(self):
        for one in vectors("answers.json"):
            ids = Filter(vector(one["file"]))
            self.assertEqual(ids.facts.form, one["form"])
            found = "".join("1" if ids.may_contain(id) else "0" for id in one["asked"])
            self.assertEqual(found, one["maybe"], one["file"])
            for n in range(one["ids"]):
                self.assertIn(spelling(one["form"], n), ids, one["file"])

    def test_text_that_is_no_id_is_never_absent(self):
        files = {"text": "static-text-seeded.ewf", "uuid": "static-uuid.ewf", "integer": "static-integer.ewf"}
        for one in vectors("not-ids.json"):
            ids = Filter(vector(files[one["form"]]))
            for id in one["asked"]:
                self.assertTrue(ids.may_contain(id), id)
            if one["form"] == "text":
                # Bytes are an exact id: nothing is removed from them.
                self.assertFalse(all(ids.may_contain(id.encode()) for id in one["asked"]))
                self.assertFalse(all(ids.may_contain(id) for id in one["ids"]))
        now = (0, 1_700_000_000_000)
        state = State("resource", [line("key.txt")], max_staleness=10)
        state.challenge(now, "ab" * 16)
        state.manifest(now, line("manifest.txt"))
        state.proof(now, line("proof.txt"))
        state.snapshot(now, vector("static-integer.ewf"))
        state.delta(now, vector("delta.ewd"))
        self.assertEqual({state.answer(now, id) for id in one["asked"]}, {"ask"})
        self.assertEqual(state.answer(now, "7"), "maybe")
        self.assertIn("absent", {state.answer(now, id) for id in (5001, 5002, 5003)})

    def test_numbers_and_uuids_are_the_same_ids_as_their_text(self):
        integers = Filter(vector("static-integer.ewf"))
        self.assertTrue(all(id in integers for id in (7, "7", "+007", b"7", 999)))
        uuids = Filter(vector("static-uuid.ewf"))
        self.assertTrue(all(uuid.UUID(spelling("uuid", n)) in uuids for n in range(1000)))
        for wrong in (None, 0.5, True, [7]):
            with self.assertRaises(TypeError):
                integers.may_contain(wrong)
        with self.assertRaises(UnicodeError):
            integers.may_contain("\ud800")

    def test_no_id_is_missed_in_any_spelling(self):
        roll = seeded_random()
        for one in vectors("answers.json"):
            ids = Filter(vector(one["file"]))
            for _ in range(5000 if one["ids"] else 0):
                id = respell(roll, one["form"], roll.randrange(one["ids"]))
                self.assertIn(id, ids, one["file"])

    def test_truncated_flipped_and_forged_files_are_refused(self):
        for one in vectors("refused-files.json"):
            if one["what"] != "delta":
                with self.assertRaises(FilterError, msg=one["why"]):
                    Filter(bytes.fromhex(one["bytes"]))

    def test_each_truncation_and_each_flipped_bit_of_a_file_is_detected(self):
        for name in ("static-small.ewf", "updatable-small.ewf"):
            whole = vector(name)
            for cut in range(len(whole)):
                self.assertRaises(FilterError, Filter, whole[:cut])
            for bit in range(8 * len(whole)):
                flipped = bytearray(whole)
                flipped[bit // 8] ^= 1 << bit % 8
                self.assertRaises(FilterError, Filter, bytes(flipped))

    def test_signed_lines_are_trusted_and_forged_ones_are_refused(self):
        now = (0, 1_700_000_000_000)
        state = State("resource", [line("key.txt")], max_staleness=10)
        for one in vectors("refused-lines.json"):
            take = state.proof if one["what"] == "proof" else state.manifest
            with self.assertRaises(ManifestError, msg=one["why"]):
                take(now, one["line"])
        self.assertEqual(state.serial, 0)
        state.challenge(now, "ab" * 16)
        state.manifest(now, line("manifest.txt"))
        state.proof(now, line("proof.txt"))
        self.assertEqual(state.serial, 100)

    def test_clients_behave_as_the_scripts_specify(self):
        for script in vectors("scripts.json"):
            ScriptRun(self, script).run()

    @unittest.skipUnless(os.environ.get("LIVES"), "LIVES names no file")
    def test_no_id_is_missed_in_random_scripts(self):
        """The variable `LIVES` names a file with one script per line, which `cargo xtask lives` writes."""
        count = 0
        with open(os.environ["LIVES"]) as scripts:
            for count, script in enumerate(scripts, 1):
                ScriptRun(self, json.loads(script)).run()
        self.assertGreater(count, 0)


def respell(roll, form, n):
    if form == "text":
        return roll.choice((spelling(form, n), spelling(form, n).encode()))
    if form == "integer":
        return roll.choice((n, f"{n:0{roll.randrange(1, 8)}}", f"+{n}"))
    id = uuid.UUID(spelling(form, n))
    return roll.choice((id, str(id), str(id).upper(), id.hex, id.urn, "{%s}" % id))


class ScriptRun:
    """Runs one script: a list of events, each with the state that a client must have after it."""

    def __init__(self, test, script):
        client = script["client"]
        self.test, self.script, self.asked = test, script, client["asked"]
        self.files = [bytes.fromhex(file) for file in script["files"]]
        names = [hashlib.sha256(file).hexdigest() for file in self.files]
        self.file_index = {name: n for n, name in enumerate(names)}
        self.state = self.start()

    def start(self):
        client = self.script["client"]
        error = client["clock_error_ms"]
        return State(
            client["set"],
            [client["key"]],
            max_staleness=client["max_staleness_ms"] / 1000,
            clock_error=None if error is None else error / 1000,
            snapshot_bytes_max=client["snapshot_bytes_max"],
            overlay_ids_max=client["overlay_ids_max"],
        )

    def run(self):
        for number, step in enumerate(self.script["steps"]):
            # `at` is the index of the document or file of the event `what`; for a challenge, its bytes in hex. The
            # columns after `at` are the expected state after the event. `snapshot` and `deltas` are the indexes of the
            # files to fetch next. Random scripts have a last column with `!` for each id that must not be answered
            # `absent`.
            monotonic, wall, what, at, outcome, fresh_ms, answers, snapshot, deltas, *marks = step
            now, where = (monotonic, wall), f"step {number} of {self.script['client']}: {step}"
            found = "taken"
            if what == "restart":
                self.state = self.start()
            try:
                self.act(now, what, at)
            except Refused as refused:
                found = refused.reason
            equal, state = self.test.assertEqual, self.state
            equal(found, outcome, where)
            equal(round(state.fresh_for(now) * 1000), fresh_ms, where)
            letters = {"absent": "a", "maybe": "m", "ask": "?"}
            given = "".join(letters[state.answer(now, int(id))] for id in self.asked)
            for id, letter, mark in zip(self.asked, given, *marks or [""]):
                self.test.assertFalse(mark == "!" and letter == "a", f"id {id} is reported as absent: {where}")
            # In a script, the answer `ask` is `n` (no filter) or `s` (stale filter). The client's answer has no reason.
            equal(given, answers.replace("n", "?").replace("s", "?"), where)
            wanted, missing = state.wants
            equal(None if wanted is None else self.file_index[wanted[0]], snapshot, where)
            equal([self.file_index[name] for name, _ in missing], deltas, where)

    def act(self, now, what, at):
        state, documents = self.state, self.script["documents"]
        if what == "manifest":
            state.manifest(now, documents[at])
        elif what == "proof":
            state.proof(now, documents[at])
        elif what == "challenge":
            state.challenge(now, at)
        elif what == "snapshot":
            state.snapshot(now, self.files[at])
        elif what == "delta":
            state.delta(now, self.files[at])
        elif what == "observe":
            state.observe(now)


if __name__ == "__main__":
    unittest.main()
