package filter

// Tests with the golden files in vectors/filter, which the tests of the clients in all languages share.

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func vector(t testing.TB, name string) []byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "..", "vectors", "filter", name))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func vectors(t testing.TB, name string, into any) {
	t.Helper()
	if err := json.Unmarshal(vector(t, name), into); err != nil {
		t.Fatal(err)
	}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	file, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func formOf(name string) Form {
	return map[string]Form{"text": Text, "uuid": UUID, "integer": Integer}[name]
}

// Returns the n-th id of a form, spelled as in crates/filter/filter/tests/vectors, which writes the golden files.
func spelling(form Form, n uint64) string {
	switch form {
	case Text:
		return fmt.Sprintf("résumé/%d", n)
	case Integer:
		return fmt.Sprintf("+00%d", n)
	}
	high := n * 0x9e3779b97f4a7c15
	id := fmt.Sprintf("%016X%016x", high, high<<32|high>>32)
	return fmt.Sprintf("{%s-%s-%s-%s-%s}", id[:8], id[8:12], id[12:16], id[16:20], id[20:])
}

// One case of answers.json: a filter file that contains the first IDs ids, and its answers for the ids in Asked. Maybe has
// one digit per asked id: 1 if the filter may contain it, 0 if the id is absent.
type answers struct {
	File, Form, Maybe string
	IDs               uint64
	Asked             []string
}

func TestHashesOfAllLengthsAndSpellingsMatchTheFormat(t *testing.T) {
	var cases []struct{ Form, Seed, Spelling, Hash string }
	vectors(t, "hashes.json", &cases)
	for _, testCase := range cases {
		seed, err := strconv.ParseUint(testCase.Seed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if found := fmt.Sprintf("%016x", Hash(testCase.Spelling, formOf(testCase.Form), seed)); found != testCase.Hash {
			t.Errorf("%s with seed %s as %s: %s instead of %s", testCase.Spelling, testCase.Seed, testCase.Form, found, testCase.Hash)
		}
	}
}

func TestFiltersOfEveryConstructionAnswerAsTheFormatSays(t *testing.T) {
	var cases []answers
	vectors(t, "answers.json", &cases)
	for _, testCase := range cases {
		filter, err := Open(vector(t, testCase.File))
		if err != nil {
			t.Fatalf("%s: %v", testCase.File, err)
		}
		found := ""
		for _, id := range testCase.Asked {
			found += map[bool]string{true: "1", false: "0"}[filter.MayContain(id)]
		}
		if found != testCase.Maybe || filter.Facts().Form.String() != testCase.Form {
			t.Errorf("%s answers %s instead of %s", testCase.File, found, testCase.Maybe)
		}
		for n := uint64(0); n < testCase.IDs; n++ {
			if !filter.MayContain(spelling(formOf(testCase.Form), n)) {
				t.Errorf("%s answers Absent for id %d", testCase.File, n)
			}
		}
	}
}

func TestTextThatIsNoIdIsNeverAbsent(t *testing.T) {
	var cases []struct {
		Form       string
		Asked, IDs []string
	}
	vectors(t, "not-ids.json", &cases)
	for _, testCase := range cases {
		form := formOf(testCase.Form)
		// An empty filter: it answers that every id is absent.
		filter := &Filter{facts: Facts{Form: form}, shards: []shard{{}}}
		state := &State{
			current:     &currentFilter{filter: filter, overlay: map[uint64]uint64{}},
			hasDeadline: true, deadline: 1 << 50,
		}
		for _, id := range testCase.Asked {
			if !filter.MayContain(id) || state.Answer(Now{}, id) != Ask {
				t.Errorf("%s %q is answered Absent", form, id)
			}
		}
		for _, id := range testCase.IDs {
			if filter.MayContain(id) || state.Answer(Now{}, id) != Absent {
				t.Errorf("%s %q is not answered Absent", form, id)
			}
		}
	}
}

func TestTruncatedFlippedAndForgedFilesAreRefused(t *testing.T) {
	var cases []struct{ What, Why, Bytes string }
	vectors(t, "refused-files.json", &cases)
	for _, testCase := range cases {
		if err := open(testCase.What, unhex(t, testCase.Bytes)); !errors.Is(err, ErrBroken) {
			t.Errorf("%s, %s: %v", testCase.What, testCase.Why, err)
		}
	}
}

func open(what string, file []byte) error {
	if what == "delta" {
		_, err := readDelta(file)
		return err
	}
	_, err := Open(file)
	return err
}

func TestEachTruncationAndEachFlippedBitIsDetected(t *testing.T) {
	for _, name := range []string{"static-small.ewf", "updatable-small.ewf", "delta.ewd"} {
		whole, what := vector(t, name), "filter"
		if strings.HasSuffix(name, "ewd") {
			what = "delta"
		}
		if err := open(what, whole); err != nil {
			t.Fatal(err)
		}
		for cut := range whole {
			if open(what, whole[:cut]) == nil {
				t.Errorf("%s cut at %d", name, cut)
			}
		}
		for bit := 0; bit < 8*len(whole); bit++ {
			flipped := append([]byte(nil), whole...)
			flipped[bit/8] ^= 1 << (bit % 8)
			if open(what, flipped) == nil {
				t.Errorf("%s with bit %d flipped", name, bit)
			}
		}
	}
}

func TestSignedLinesAreTrustedAndForgedOnesAreRefused(t *testing.T) {
	keys, err := ParseKeys(strings.TrimSpace(string(vector(t, "key.txt"))))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := ReadManifest(vector(t, "manifest.txt"), keys)
	if err != nil || manifest.Serial != 100 || manifest.Deltas[0].SHA256 != digestOf(vector(t, "delta.ewd")) {
		t.Fatalf("%+v, %v", manifest, err)
	}
	proof, err := ReadProof(vector(t, "proof.txt"), keys)
	if err != nil || proof.LagMS != 250 {
		t.Fatalf("%+v, %v", proof, err)
	}
	// Without keys the client accepts signed and unsigned lines.
	_, text, _ := strings.Cut(string(vector(t, "manifest.txt")), "{")
	for _, line := range []string{"unsigned {" + text, string(vector(t, "manifest.txt"))} {
		if _, err := ReadManifest([]byte(line), nil); err != nil {
			t.Error(err)
		}
	}
	var cases []struct{ What, Why, Line string }
	vectors(t, "refused-lines.json", &cases)
	for _, testCase := range cases {
		if testCase.What == "proof" {
			_, err = ReadProof([]byte(testCase.Line), keys)
		} else {
			_, err = ReadManifest([]byte(testCase.Line), keys)
		}
		if !errors.Is(err, ErrUnbelievable) {
			t.Errorf("%s, %s: %v", testCase.What, testCase.Why, err)
		}
	}
}

// A script: the configuration of a client, the documents and files of its publisher, and the steps of the client.
type script struct {
	Client struct {
		Set, Key         string
		Seed             int
		MaxStalenessMS   int64  `json:"max_staleness_ms"`
		ClockErrorMS     *int64 `json:"clock_error_ms"`
		OverlayIDsMax    int    `json:"overlay_ids_max"`
		SnapshotBytesMax uint64 `json:"snapshot_bytes_max"`
		Asked            []string
	}
	Documents, Files []string
	// Each step is a list: the monotonic and the wall time in ms, the event, the event's input, the expected outcome, how
	// long the client then stays fresh in ms, the answers for Asked, the snapshot to fetch, and the deltas to fetch.
	// Documents and files are numbered from 0. The random scripts of `cargo xtask lives` add a tenth item: it has a "!" for
	// each id of Asked that must not be answered Absent.
	Steps [][]json.RawMessage
}

func TestClientsBehaveAsTheScriptsSpecify(t *testing.T) {
	var scripts []script
	vectors(t, "scripts.json", &scripts)
	for _, testCase := range scripts {
		runScript(t, testCase)
	}
}

// Runs random scripts ("lives"), one per line of the file that the environment variable LIVES names. `cargo xtask lives`
// writes this file.
func TestNoIdIsMissedInRandomScripts(t *testing.T) {
	path := os.Getenv("LIVES")
	if path == "" {
		t.Skip("set LIVES to a file of cargo xtask lives")
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lives := 0
	for decoder := json.NewDecoder(file); decoder.More(); lives++ {
		var testCase script
		if err := decoder.Decode(&testCase); err != nil {
			t.Fatal(err)
		}
		runScript(t, testCase)
	}
	if lives == 0 {
		t.Fatalf("%s has no lives", path)
	}
	t.Logf("%d lives", lives)
}

func runScript(t *testing.T, testCase script) {
	t.Helper()
	keys, err := ParseKeys(testCase.Client.Key)
	if err != nil {
		t.Fatal(err)
	}
	config := StateConfig{
		Set:              testCase.Client.Set,
		MaxStaleness:     time.Duration(testCase.Client.MaxStalenessMS) * time.Millisecond,
		SnapshotBytesMax: testCase.Client.SnapshotBytesMax,
		OverlayIDsMax:    testCase.Client.OverlayIDsMax,
	}
	if ms := testCase.Client.ClockErrorMS; ms != nil {
		config.DatesCount, config.ClockError = true, time.Duration(*ms)*time.Millisecond
	}
	files, fileNumbers := make([][]byte, len(testCase.Files)), map[string]int{}
	for n, file := range testCase.Files {
		files[n] = unhex(t, file)
		fileNumbers[digestOf(files[n])] = n
	}
	state := NewState(config)
	for number, step := range testCase.Steps {
		if string(step[2]) == `"restart"` {
			state = NewState(config)
		}
		runStep(t, fmt.Sprintf("seed %d, step %d: %s", testCase.Client.Seed, number, step), testCase, state, keys, files, fileNumbers, step)
	}
}

func runStep(
	t *testing.T, where string, testCase script, state *State, keys Keys, files [][]byte, fileNumbers map[string]int,
	step []json.RawMessage,
) {
	t.Helper()
	var monotonic, wall, fresh int64
	var what, outcome, answers string
	var at int
	var snapshot *int
	var deltas []int
	for n, place := range map[int]any{
		0: &monotonic, 1: &wall, 2: &what, 4: &outcome, 5: &fresh, 6: &answers, 7: &snapshot, 8: &deltas,
	} {
		if err := json.Unmarshal(step[n], place); err != nil {
			t.Fatal(where, err)
		}
	}
	now := Now{time.Duration(monotonic) * time.Millisecond, wall}
	if what == "manifest" || what == "proof" || what == "snapshot" || what == "delta" {
		if err := json.Unmarshal(step[3], &at); err != nil {
			t.Fatal(where, err)
		}
	}
	var err error
	switch what {
	case "manifest":
		var manifest *Manifest
		if manifest, err = ReadManifest([]byte(testCase.Documents[at]), keys); err == nil {
			err = state.Manifest(now, manifest)
		}
	case "proof":
		var proof *Proof
		if proof, err = ReadProof([]byte(testCase.Documents[at]), keys); err == nil {
			err = state.Proof(now, proof)
		}
	case "challenge":
		var echo string
		err = json.Unmarshal(step[3], &echo)
		state.Challenge(now, echo)
	case "snapshot":
		err = state.Snapshot(now, Receive(files[at]))
	case "delta":
		err = state.Delta(now, files[at])
	case "observe":
		state.Observe(now)
	}
	found := "taken"
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		found = string(refused.Reason)
	case errors.Is(err, ErrUnbelievable):
		found = "unbelievable"
		state.Observe(now)
	case err != nil:
		t.Fatal(where, err)
	}
	if found != outcome {
		t.Fatalf("%s: %s, %v", where, found, err)
	}
	if left := state.FreshFor(now).Milliseconds(); left != fresh {
		t.Fatalf("%s: fresh for %d ms", where, left)
	}
	letters := ""
	for _, id := range testCase.Client.Asked {
		letters += map[Answer]string{Absent: "a", Maybe: "m", Ask: "?"}[state.Answer(now, id)]
	}
	if len(step) > 9 {
		var must string
		if err := json.Unmarshal(step[9], &must); err != nil {
			t.Fatal(where, err)
		}
		for n := range must {
			if must[n] == '!' && letters[n] == 'a' {
				t.Fatalf("%s: id %s is answered Absent", where, testCase.Client.Asked[n])
			}
		}
	}
	// The script has "n" (no filter) and "s" (stale filter) for the two reasons of the answer Ask.
	if letters != strings.NewReplacer("n", "?", "s", "?").Replace(answers) {
		t.Fatalf("%s: %s", where, letters)
	}
	wanted, missing := state.Wants()
	if (wanted == nil) != (snapshot == nil) || wanted != nil && fileNumbers[wanted.SHA256] != *snapshot {
		t.Fatalf("%s: wants %+v", where, wanted)
	}
	if len(missing) != len(deltas) {
		t.Fatalf("%s: wants %+v", where, missing)
	}
	for n, delta := range missing {
		if fileNumbers[delta.SHA256] != deltas[n] {
			t.Fatalf("%s: wants %+v", where, missing)
		}
	}
}
