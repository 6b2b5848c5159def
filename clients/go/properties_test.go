package filter

// Properties of random input. The seed is printed; SEED=… repeats it.

import (
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func dice(t testing.TB) *rand.Rand {
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
	roll := dice(t)
	var cases []answers
	vectors(t, "answers.json", &cases)
	for _, one := range cases {
		filter, err := Open(vector(t, one.File))
		if err != nil {
			t.Fatal(err)
		}
		for round := 0; one.IDs > 0 && round < 10_000; round++ {
			id := respell(roll, formOf(one.Form), spelling(formOf(one.Form), uint64(roll.Int63n(int64(one.IDs)))))
			if !filter.MayContain(id) {
				t.Fatalf("%s hides %s", one.File, id)
			}
		}
	}
}

func respell(roll *rand.Rand, form Form, id string) string {
	switch form {
	case Text:
		return id
	case Integer:
		digits := strings.TrimLeft(id, "+0")
		if digits == "" {
			digits = "0"
		}
		return []string{"+", ""}[roll.Intn(2)] + strings.Repeat("0", roll.Intn(4)) + digits
	}
	bare := strings.Map(func(letter rune) rune {
		if roll.Intn(2) == 0 {
			return []rune(strings.ToUpper(string(letter)))[0]
		}
		return []rune(strings.ToLower(string(letter)))[0]
	}, strings.Trim(id, "{}"))
	return []string{bare, strings.ReplaceAll(bare, "-", ""), "{" + bare + "}", "URN:uuid:" + bare}[roll.Intn(4)]
}

func TestInvalidSpellingsAreHashedUnchanged(t *testing.T) {
	for _, wrong := range []string{
		"", "+", "--1", "1.0", "{}", "{", "urn:uuid:", "0x10", "1e3", "١", " 7", strings.Repeat("9", 40),
		"550e8400_e29b_41d4_a716_446655440000", "5-0e8400e29b41d4a71644665544000000",
	} {
		for _, form := range []Form{UUID, Integer} {
			if Hash(wrong, form, 0) != Hash(wrong, Text, 0) {
				t.Errorf("%q is taken for a %s", wrong, form)
			}
		}
	}
	if edge := "+" + integerMax; Hash(edge, Integer, 0) != Hash(integerMax, Text, 0) {
		t.Error("the largest integer is an id")
	}
	if beyond := "+" + integerMinAbs; Hash(beyond, Integer, 0) != Hash(beyond, Text, 0) {
		t.Error("one more is none")
	}
}

func TestRandomHashesMatchAtTheConfiguredRate(t *testing.T) {
	roll := dice(t)
	var cases []answers
	vectors(t, "answers.json", &cases)
	for _, one := range cases {
		if one.IDs < 1000 {
			continue
		}
		filter, err := Open(vector(t, one.File))
		if err != nil {
			t.Fatal(err)
		}
		const probes = 200_000
		passed := 0
		for n := 0; n < probes; n++ {
			if filter.mayContain(roll.Uint64()) {
				passed++
			}
		}
		// Five standard deviations, and the error of rounded widths.
		expected := probes * filter.Facts().Rate
		if float64(passed) > expected+5*math.Sqrt(expected)+3 {
			t.Errorf("%s: %d of %d passed, %f are expected", one.File, passed, probes, expected)
		}
	}
}

// Every filter that opens can be queried: forged payloads with valid checksums return an answer and access no other memory.
func TestForgedPayloadsCanBeQueried(t *testing.T) {
	roll := dice(t)
	for _, name := range []string{"static-three-shards.ewf", "static-rare.ewf", "updatable-small.ewf"} {
		whole := vector(t, name)
		for round := 0; round < 3000; round++ {
			forged := append([]byte(nil), whole...)
			for n := 0; n <= roll.Intn(6); n++ {
				at := headerBytes + roll.Intn(len(forged)-headerBytes)
				if roll.Intn(2) == 0 {
					at = headerBytes + roll.Intn(32)
				}
				forged[at] = byte(roll.Uint32())
			}
			put64(forged[72:], xxh3(forged[headerBytes:], 0))
			put64(forged[120:], xxh3(forged[:120], 0))
			if filter, err := Open(forged); err == nil {
				for n := 0; n < 20; n++ {
					filter.mayContain(roll.Uint64())
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
