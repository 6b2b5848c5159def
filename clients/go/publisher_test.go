package filter

// A test with a real publisher on loopback. The test is skipped unless the environment variable EDGEWARD has the path of
// the edgeward program.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAClientFollowsARealPublisher(t *testing.T) {
	program := os.Getenv("EDGEWARD")
	if program == "" {
		t.Skip("set EDGEWARD to the path of the program")
	}
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	const token = "a-token-that-is-long-enough"
	var ids strings.Builder
	for n := 0; n < 5000; n++ {
		fmt.Fprintln(&ids, n)
	}
	for name, text := range map[string]string{"ids.txt": ids.String(), "token": token} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(program, "filter", "keygen", "-o", at("key")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// `--covered-by posts` states that writers post every id, so the filter stays fresh after its scan. With `scans`, it
	// would have all ids only up to the time of its scan.
	publisher := exec.Command(program, "filter", "serve", "--set", "resource", "--source", at("ids.txt"),
		"--ids", "integer", "--key", at("key"), "--token", at("token"), "--covered-by", "posts",
		"--state", at("state"), "--listen", "127.0.0.1:0", "--json")
	stdout, err := publisher.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := publisher.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = publisher.Process.Kill()
		_ = publisher.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var started struct {
		Listening string
		PublicKey string `json:"public_key"`
	}
	if err := json.Unmarshal(line, &started); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	client, err := Start(ctx, Config{
		URL: started.Listening, Keys: []string{started.PublicKey}, MaxStaleness: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.WaitFresh(ctx); err != nil {
		t.Fatalf("%v: %+v", err, client.Status())
	}
	for n := 0; n < 5000; n++ {
		if !client.MayExist(fmt.Sprint(n)) {
			t.Fatalf("id %d is answered Absent", n)
		}
	}
	var missing []string
	for n := 1_000_000; n < 1_001_000; n++ {
		if id := fmt.Sprint(n); !client.MayExist(id) {
			missing = append(missing, id)
		}
	}
	if len(missing) < 950 {
		t.Fatalf("the client answers Absent for only %d of 1000 absent ids at a false-positive rate of 1 %%", len(missing))
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, started.Listening+"/ids", strings.NewReader(missing[0]))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
	if err := client.WaitUntil(ctx, func(Status) bool { return client.MayExist(missing[0]) }); err != nil {
		t.Fatalf("a posted id is still answered Absent: %v", err)
	}
	if client.Status().Counts.Deltas == 0 {
		t.Error("no delta was used")
	}

	if err := publisher.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := client.WaitUntil(ctx, func(status Status) bool { return !status.Fresh }); err != nil {
		t.Fatalf("without a publisher the filter stays fresh: %v", err)
	}
	// A filter that is not fresh must not answer Absent.
	if answer := client.Answer(missing[1]); answer != Ask {
		t.Error(answer)
	}
}
