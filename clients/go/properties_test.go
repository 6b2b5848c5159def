package filter

// Tests with random input. Each test logs its seed; SEED=… repeats the test with this seed.

import (
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func seededRandom(t testing.TB) *rand.Rand {
	seed := time.Now().UnixNano()
	if text := os.Getenv("SEED"); text != "" {
		given, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = given
	}
	t.Logf("SEED=%d", seed)
	return rand.New(rand.NewSource(seed))
}

func TestNoIdIsMissedInAnySpelling(t *testing.T) {
	random := seededRandom(t)
	var cases []answers
	vectors(t, "answers.json", &cases)
	for _, testCase := range cases {
		filter, err := Open(vector(t, testCase.File))
		if err != nil {
			t.Fatal(err)
		}
		for round := 0; testCase.IDs > 0 && round < 10_000; round++ {
			id := respell(random, formOf(testCase.Form), spelling(formOf(testCase.Form), uint64(random.Int63n(int64(testCase.IDs)))))
			if !filter.MayContain(id) {
				t.Fatalf("%s answers Absent for id %s", testCase.File, id)
			}
		}
	}
}

// Returns the id in a random spelling that its form allows.
func respell(random *rand.Rand, form Form, id string) string {
	switch form {
	case Text:
		return id
	case Integer:
		digits := strings.TrimLeft(id, "+0")
		if digits == "" {
			digits = "0"
		}
		return []string{"+", ""}[random.Intn(2)] + strings.Repeat("0", random.Intn(4)) + digits
	}
	bare := strings.Map(func(letter rune) rune {
		if random.Intn(2) == 0 {
			return []rune(strings.ToUpper(string(letter)))[0]
		}
		return []rune(strings.ToLower(string(letter)))[0]
	}, strings.Trim(id, "{}"))
	return []string{bare, strings.ReplaceAll(bare, "-", ""), "{" + bare + "}", "URN:uuid:" + bare}[random.Intn(4)]
}

func TestInvalidSpellingsAreHashedUnchanged(t *testing.T) {
	for _, wrong := range []string{
		"", "+", "--1", "1.0", "{}", "{", "urn:uuid:", "0x10", "1e3", "١", " 7", strings.Repeat("9", 40),
		"550e8400_e29b_41d4_a716_446655440000", "5-0e8400e29b41d4a71644665544000000",
	} {
		for _, form := range []Form{UUID, Integer} {
			if Hash(wrong, form, 0) != Hash(wrong, Text, 0) {
				t.Errorf("%q is parsed as a %s", wrong, form)
			}
		}
	}
	if largest := "+" + integerMax; Hash(largest, Integer, 0) != Hash(integerMax, Text, 0) {
		t.Error("the largest integer is not parsed as an integer")
	}
	if beyond := "+" + integerMinAbs; Hash(beyond, Integer, 0) != Hash(beyond, Text, 0) {
		t.Error("one more than the largest integer is parsed as an integer")
	}
}

func TestRandomHashesMatchAtTheConfiguredRate(t *testing.T) {
	random := seededRandom(t)
	var cases []answers
	vectors(t, "answers.json", &cases)
	for _, testCase := range cases {
		if testCase.IDs < 1000 {
			continue
		}
		filter, err := Open(vector(t, testCase.File))
		if err != nil {
			t.Fatal(err)
		}
		const probes = 200_000
		passed := 0
		for n := 0; n < probes; n++ {
			if filter.mayContain(random.Uint64()) {
				passed++
			}
		}
		// The limit is the expected count, plus five standard deviations, plus 3. The 3 are needed because the slots of a
		// filter have whole numbers of bits, so its rate differs a little from the configured rate.
		expected := probes * filter.Facts().Rate
		if float64(passed) > expected+5*math.Sqrt(expected)+3 {
			t.Errorf("%s: %d of %d random hashes are false positives, expected %f", testCase.File, passed, probes, expected)
		}
	}
}

// Every filter that Open accepts can be queried without a panic, also if its payload is forged and its checksums are
// valid.
func TestForgedPayloadsCanBeQueried(t *testing.T) {
	random := seededRandom(t)
	for _, name := range []string{"static-three-shards.ewf", "static-rare.ewf", "updatable-small.ewf"} {
		whole := vector(t, name)
		for round := 0; round < 3000; round++ {
			forged := append([]byte(nil), whole...)
			for n := 0; n <= random.Intn(6); n++ {
				// Half of the changes are in the first 32 bytes of the payload: in a static filter, the entry of the first
				// shard in the directory.
				at := headerBytes + random.Intn(len(forged)-headerBytes)
				if random.Intn(2) == 0 {
					at = headerBytes + random.Intn(32)
				}
				forged[at] = byte(random.Uint32())
			}
			// The header has the payload's checksum at offset 72 and its own checksum at offset 120.
			put64(forged[72:], xxh3(forged[headerBytes:], 0))
			put64(forged[120:], xxh3(forged[:120], 0))
			if filter, err := Open(forged); err == nil {
				for n := 0; n < 20; n++ {
					filter.mayContain(random.Uint64())
				}
			}
		}
	}
}

func put64(to []byte, value uint64) {
	for n := 0; n < 8; n++ {
		to[n] = byte(value >> (8 * n))
	}
}

func BenchmarkStatic(b *testing.B)    { benchmark(b, "static-uuid.ewf") }
func BenchmarkUpdatable(b *testing.B) { benchmark(b, "updatable-uuid.ewf") }

func benchmark(b *testing.B, name string) {
	filter, err := Open(vector(b, name))
	if err != nil {
		b.Fatal(err)
	}
	ids := make([]string, 1024)
	for n := range ids {
		ids[n] = strings.ToLower(strings.Trim(spelling(UUID, uint64(n)), "{}"))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n++ {
		filter.MayContain(ids[n%len(ids)])
	}
}
