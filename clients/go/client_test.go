package filter

// Tests of the client with a publisher in this process, and with clocks that only the test advances.

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// The timeout of all waits. It is long because the machine may be suspended during a test.
const testTimeout = 3 * time.Minute

// fakePublisher answers from memory, signs its statements, and injects faults.
type fakePublisher struct {
	mutex sync.Mutex
	// The fault to inject: "dead" (no response), "forged" (signed with another key), "old" (a low serial number), "cut"
	// (a file without its last byte), "broken" (a connection error), "flipped" (a wrong bit) or "flood" (endless zeros).
	// Empty: no fault.
	fault string
	// The serial number of manifests and proofs.
	serial uint64
	// The times of the two clocks in milliseconds. Only the test advances them.
	monotonic, wall int64
	// The URL paths of all requests so far.
	fetched []string
	// The key that the client trusts, and the key that signs with the fault "forged".
	secret, untrusted ed25519.PrivateKey
	snapshot, delta   []byte
}

func newPublisher(t *testing.T) *fakePublisher {
	return &fakePublisher{
		serial: 1000, monotonic: 1_000, wall: 1_700_000_000_000,
		secret:    ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)),
		untrusted: ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32)),
		snapshot:  vector(t, "static-integer.ewf"),
		delta:     vector(t, "delta.ewd"),
	}
}

// Sets the fault to inject from now on.
func (p *fakePublisher) setFault(fault string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fault = fault
}

func (p *fakePublisher) now() Now {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return Now{time.Duration(p.monotonic) * time.Millisecond, p.wall}
}

// Advances both clocks. A negative duration steps a clock back.
func (p *fakePublisher) advance(monotonic, wall time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.monotonic += monotonic.Milliseconds()
	p.wall += wall.Milliseconds()
}

func (p *fakePublisher) requests() []string {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return append([]string(nil), p.fetched...)
}

func (p *fakePublisher) RoundTrip(request *http.Request) (*http.Response, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fetched = append(p.fetched, request.URL.Path)
	if p.fault == "dead" {
		return nil, errors.New("no route to host")
	}
	answer := &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Request: request}
	switch {
	case strings.Contains(request.URL.Path, "/snapshot/"):
		p.file(answer, p.snapshot)
	case strings.Contains(request.URL.Path, "/delta/"):
		p.file(answer, p.delta)
	default:
		p.manifest(answer)
	}
	return answer, nil
}

func (p *fakePublisher) manifest(answer *http.Response) {
	serial := p.serial
	if p.fault == "old" {
		serial = 1
	}
	if echo := answer.Request.Header.Get("Edgeward-Challenge"); echo != "" {
		answer.Header.Set("Edgeward-Proof", p.sign("proof", map[string]any{
			"format": 2, "set": "resource", "serial": serial, "lineage": 305419896, "epoch_min": 7, "head": 2,
			"lag_ms": 0, "echo": echo,
		}))
	}
	// A query states the newest manifest that the client has.
	if answer.Request.URL.RawQuery != "" && p.fault == "" {
		answer.StatusCode = 204
		answer.Body = http.NoBody
		return
	}
	line := p.sign("manifest", map[string]any{
		"format": 2, "set": "resource", "serial": serial, "lineage": 305419896, "covers_ms": p.wall,
		"epoch_min": 7, "head": 2,
		"snapshot": map[string]any{
			"epoch": 7, "base": 1, "bytes": len(p.snapshot), "sha256": digestOf(p.snapshot),
		},
		"deltas": []any{map[string]any{"from": 1, "to": 2, "bytes": len(p.delta), "sha256": digestOf(p.delta)}},
	})
	answer.Body = io.NopCloser(strings.NewReader(line + "\n"))
}

func (p *fakePublisher) sign(kind string, document any) string {
	text, err := json.Marshal(document)
	if err != nil {
		panic(err)
	}
	key := p.secret
	if p.fault == "forged" {
		key = p.untrusted
	}
	message := append([]byte("edgeward filter "+kind+" 1\n"), text...)
	// The line always names the trusted key, also if the untrusted key has signed it.
	return fmt.Sprintf("ed25519 fe812c12f3ab4ce6 %s %s", hex.EncodeToString(ed25519.Sign(key, message)), text)
}

func (p *fakePublisher) file(answer *http.Response, file []byte) {
	var from int
	if ranges := answer.Request.Header.Get("Range"); ranges != "" {
		if _, err := fmt.Sscanf(ranges, "bytes=%d-", &from); err != nil {
			panic(err)
		}
		answer.StatusCode = 206
		answer.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(file)-1, len(file)))
	}
	body := io.Reader(bytes.NewReader(file[from:]))
	switch p.fault {
	case "cut":
		body = io.LimitReader(body, int64(len(file)-1-from))
	case "broken":
		// Each response breaks after 300 bytes, as long as more bytes remain.
		if len(file)-from > 300 {
			body = io.MultiReader(io.LimitReader(body, 300), brokenReader{})
		}
	case "flipped":
		flipped := append([]byte(nil), file...)
		flipped[200%len(flipped)] ^= 1
		body = bytes.NewReader(flipped[from:])
	case "flood":
		body = zeros{}
	}
	answer.Body = io.NopCloser(body)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type zeros struct{}

func (zeros) Read(to []byte) (int, error) { return len(to), nil }

func start(t *testing.T, publisher *fakePublisher, change func(*Config)) *Client {
	t.Helper()
	config := Config{
		URL:          "http://publisher.test/sets/resource/",
		Keys:         []string{strings.TrimSpace(string(vector(t, "key.txt")))},
		MaxStaleness: 3 * time.Second,
		Transport:    publisher,
		Now:          publisher.now,
	}
	if change != nil {
		change(&config)
	}
	client, err := Start(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func until(t *testing.T, client *Client, what string, holds func(Status) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := client.WaitUntil(ctx, holds); err != nil {
		t.Fatalf("%s: %v, %+v", what, err, client.Status())
	}
}

func fresh(status Status) bool { return status.Fresh }

// Returns an id for which the client answers Absent.
func absent(t *testing.T, client *Client) string {
	t.Helper()
	for n := 5000; n < 5100; n++ {
		if id := fmt.Sprint(n); client.Answer(id) == Absent {
			return id
		}
	}
	t.Fatal("the client answers Maybe for all of 100 absent ids")
	return ""
}

// A client without a filter answers Ask: its caller then sends the request.
func TestAClientAsksUntilItsFilterIsLoadedAndThenSkipsAbsentIds(t *testing.T) {
	publisher := newPublisher(t)
	publisher.setFault("dead")
	client := start(t, publisher, nil)
	until(t, client, "failures", func(status Status) bool { return status.Counts.Failed > 0 })
	if answer := client.Answer("7"); answer != Ask {
		t.Fatalf("without a filter the answer is %v", answer)
	}
	publisher.setFault("")
	until(t, client, "fresh", fresh)
	if client.Answer("7") != Maybe || client.Answer("1001") != Maybe {
		t.Error("ids of the snapshot and of the delta may exist")
	}
	skipped := 0
	for n := 5000; n < 5200; n++ {
		if !client.MayExist(fmt.Sprint(n)) {
			skipped++
		}
	}
	if skipped < 180 {
		t.Errorf("the client answers Absent for only %d of 200 absent ids at a false-positive rate of 3 %%", skipped)
	}
	if status := client.Status(); status.OverlayIDs != 3 || status.Facts.IDs != 1000 {
		t.Errorf("%+v", status)
	}
}

func TestAClientWithoutPublisherAsksAfterMaxStalenessAndNotBefore(t *testing.T) {
	publisher := newPublisher(t)
	client := start(t, publisher, nil)
	until(t, client, "fresh", fresh)
	id := absent(t, client)
	publisher.setFault("dead")
	before := client.Status().Counts.Failed
	until(t, client, "failures", func(status Status) bool { return status.Counts.Failed > before })
	// At most MaxStaleness (3 s), minus 2 * jitterMS (100 ms) for rounding errors of the two clocks.
	left := client.Status().FreshFor
	if left <= 0 || left > 2900*time.Millisecond {
		t.Fatal(left)
	}
	publisher.advance(left, left)
	if answer := client.Answer(id); answer != Absent {
		t.Errorf("at the deadline the answer is %v", answer)
	}
	publisher.advance(time.Millisecond, time.Millisecond)
	if answer := client.Answer(id); answer != Ask {
		t.Errorf("after the deadline the answer is %v", answer)
	}
	publisher.setFault("")
	until(t, client, "fresh again", fresh)
}

func TestAWallClockThatIsSteppedBackDoesNotExtendTheDeadline(t *testing.T) {
	publisher := newPublisher(t)
	client := start(t, publisher, nil)
	until(t, client, "fresh", fresh)
	publisher.setFault("dead")
	before := client.Status().Counts.Failed
	until(t, client, "failures", func(status Status) bool { return status.Counts.Failed > before })
	publisher.advance(3001*time.Millisecond, -time.Hour)
	if client.Status().Fresh {
		t.Error("the filter is still fresh after three seconds")
	}
}

func TestForgedOrOldDataIsRefusedAndTheLastValidFilterStays(t *testing.T) {
	for _, fault := range []string{"forged", "old"} {
		publisher := newPublisher(t)
		client := start(t, publisher, nil)
		until(t, client, "fresh", fresh)
		publisher.setFault(fault)
		until(t, client, fault, func(status Status) bool { return status.Counts.Refused >= 2 })
		if client.Status().Serial != 1000 || client.Status().Facts.Epoch != 7 || client.Answer("7") != Maybe {
			t.Errorf("%s: %+v", fault, client.Status())
		}
		publisher.advance(time.Minute, time.Minute)
		if answer := client.Answer("5001"); answer != Ask {
			t.Errorf("%s: a stale filter answers %v", fault, answer)
		}
	}
}

func TestABrokenSnapshotIsRefusedAndALaterValidOneIsUsed(t *testing.T) {
	for _, fault := range []string{"cut", "flipped", "flood"} {
		publisher := newPublisher(t)
		publisher.setFault(fault)
		client := start(t, publisher, nil)
		until(t, client, fault, func(status Status) bool { return status.Counts.Failed >= 2 })
		if status := client.Status(); status.Facts != nil || status.Counts.Bytes > 10_000_000 {
			t.Errorf("%s: %+v", fault, status)
		}
		publisher.setFault("")
		until(t, client, "fresh", fresh)
	}
}

func TestABrokenDownloadIsResumed(t *testing.T) {
	publisher := newPublisher(t)
	publisher.setFault("broken")
	client := start(t, publisher, nil)
	until(t, client, "a snapshot", func(status Status) bool { return status.Facts != nil })
	downloads := 0
	for _, path := range publisher.requests() {
		if strings.Contains(path, "/snapshot/") {
			downloads++
		}
	}
	// The snapshot has 1093 bytes, and each response breaks after 300.
	if downloads != 4 {
		t.Errorf("%d requests for the snapshot", downloads)
	}
}

func TestASnapshotLargerThanAllowedIsNotFetched(t *testing.T) {
	publisher := newPublisher(t)
	client := start(t, publisher, func(config *Config) { config.SnapshotBytesMax = 1000 })
	until(t, client, "polls", func(status Status) bool { return status.Counts.Polls >= 3 })
	for _, path := range publisher.requests() {
		if strings.Contains(path, "/snapshot/") {
			t.Error(path)
		}
	}
	if answer := client.Answer("5001"); answer != Ask {
		t.Error(answer)
	}
}

// A ClockError above zero is the guaranteed limit of the difference of the two wall clocks. The date in a manifest then
// proves that the manifest is fresh, and the client needs no separate proof.
func TestManifestsAreFreshByTheirDateIfClocksAreGuaranteed(t *testing.T) {
	publisher := newPublisher(t)
	client := start(t, publisher, func(config *Config) { config.ClockError = 200 * time.Millisecond })
	until(t, client, "fresh", fresh)
	if proofs := client.Status().Counts.Proofs; proofs != 0 {
		t.Errorf("%d proofs", proofs)
	}
}

func TestWrongConfigurationsAreRefused(t *testing.T) {
	key := strings.Repeat("00", 32)
	for _, wrong := range []Config{
		{},
		{URL: "http://a/sets/b", MaxStaleness: time.Second},
		{URL: "http://a/sets/b", Keys: []string{key}},
		{URL: "http://a/sets/b", Keys: []string{"00"}, MaxStaleness: time.Second},
		{URL: "http://a/", Keys: []string{key}, MaxStaleness: time.Second},
		{URL: "http://a/b?c", Keys: []string{key}, MaxStaleness: time.Second},
		{URL: "http://u@a/b", Keys: []string{key}, MaxStaleness: time.Second},
		{URL: "ftp://a/b", Keys: []string{key}, MaxStaleness: time.Second},
	} {
		if client, err := Start(context.Background(), wrong); err == nil {
			client.Close()
			t.Errorf("%+v", wrong)
		}
	}
}
