package filter

// The background work of a client: its requests, their times, and the handling of failures.

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"
)

const (
	pauseMin  = 10 * time.Millisecond
	periodMin = 50 * time.Millisecond
	// The time that proxies usually tolerate without a byte.
	periodMax    = 25 * time.Second
	backoffFirst = 100 * time.Millisecond
	// With ranges each attempt resumes where the last one ended.
	downloadAttempts = 8
)

// Polls the publisher with one long request after another. Each takes a third of MaxStaleness, because the
// freshness of an answer counts from the time at which its request was sent.
func (c *Client) pollForever(ctx context.Context) {
	defer c.done.Done()
	failures := 0
	for ctx.Err() == nil {
		begun := time.Now()
		news, err := c.poll(ctx)
		if err == nil {
			err = c.fetchDeltas(ctx)
		}
		pause := pauseMin
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			pause = c.failed(err, failures)
		default:
			failures = 0
			if !news {
				// A server that does not wait, such as a cache, must not be polled without a pause.
				pause = c.period - time.Since(begun)
			}
		}
		select {
		case c.wanted <- struct{}{}:
		default:
		}
		c.tell()
		sleep(ctx, jittered(pause))
	}
}

// Fetches snapshots concurrently, so that a large one does not delay new ids.
func (c *Client) downloadForever(ctx context.Context) {
	defer c.done.Done()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wanted:
		}
		for ctx.Err() == nil {
			c.mutex.RLock()
			named, _ := c.state.Wants()
			c.mutex.RUnlock()
			if named == nil {
				failures = 0
				break
			}
			err := c.fetchSnapshot(ctx, *named)
			if err == nil {
				err = c.fetchDeltas(ctx)
			}
			if err != nil && ctx.Err() == nil {
				failures++
				sleep(ctx, jittered(c.failed(err, failures)))
			}
			c.tell()
		}
	}
}

// Polls the publisher. Returns true if the next poll should follow at once.
func (c *Client) poll(ctx context.Context) (bool, error) {
	dated := c.config.ClockError > 0
	header, beneath, patience := http.Header{}, "", time.Duration(0)
	c.mutex.Lock()
	c.counts.Polls++
	position := c.state.Position()
	c.mutex.Unlock()
	if dated {
		if c.tag != "" {
			header.Set("If-None-Match", c.tag)
		}
	} else {
		var random [16]byte
		if _, err := rand.Read(random[:]); err != nil {
			return false, err
		}
		echo := hex.EncodeToString(random[:])
		c.mutex.Lock()
		c.state.Challenge(c.config.Now(), echo)
		c.mutex.Unlock()
		header.Set("Edgeward-Challenge", echo)
		// RFC 9111 §5.2.1.4: caches must forward the request to the publisher.
		header.Set("Cache-Control", "no-cache")
		if position != "" {
			patience = c.period
			beneath = fmt.Sprintf("?have=%s&wait=%d", position, patience.Milliseconds())
		}
	}
	answer, line, err := c.get(ctx, beneath, header, nil, lineBytesMax, patience)
	if err != nil {
		return false, err
	}
	news, tooLarge := false, error(nil)
	switch answer.StatusCode {
	case http.StatusOK:
		manifest, err := ReadManifest(line, c.keys)
		if err == nil {
			c.mutex.Lock()
			if err = c.state.Manifest(c.config.Now(), manifest); err == nil {
				c.counts.Manifests++
			}
			tooLarge = c.state.SnapshotRefused()
			c.mutex.Unlock()
		}
		if err != nil {
			return false, fmt.Errorf("the manifest is refused: %w", err)
		}
		if dated {
			c.tag = answer.Header.Get("ETag")
		}
		news = !dated
	case http.StatusNoContent, http.StatusNotModified:
	default:
		return false, statusError(answer.StatusCode)
	}
	if line := answer.Header.Get("Edgeward-Proof"); line != "" && !dated {
		proof, err := ReadProof([]byte(line), c.keys)
		if err == nil {
			c.mutex.Lock()
			if err = c.state.Proof(c.config.Now(), proof); err == nil {
				c.counts.Proofs++
			}
			c.mutex.Unlock()
		}
		if err != nil {
			return false, fmt.Errorf("the proof is refused: %w", err)
		}
	}
	if tooLarge != nil {
		// The publisher answers at once while the client's snapshot is older, so the client must pause between polls.
		news = false
		c.failed(fmt.Errorf("the snapshot is not fetched: %w", tooLarge), 1)
	}
	return news, nil
}

// Fetches the deltas that are needed now, in their order.
func (c *Client) fetchDeltas(ctx context.Context) error {
	c.mutex.RLock()
	_, wanted := c.state.Wants()
	c.mutex.RUnlock()
	most := uint64(deltaHeaderBytes + 8*c.config.OverlayIDsMax)
	for _, entry := range wanted {
		if entry.Bytes > most {
			return refuse(OverlayFull, "a delta of %d bytes is larger than the %d allowed", entry.Bytes, most)
		}
		file, err := c.file(ctx, "/delta/"+entry.SHA256, entry.Bytes, 1)
		if err == statusError(http.StatusNotFound) {
			// The delta was merged meanwhile: the next manifest lists the replacement.
			return nil
		}
		if err != nil {
			return err
		}
		c.mutex.Lock()
		if err = c.state.Delta(c.config.Now(), file); err == nil {
			c.counts.Deltas++
		}
		c.mutex.Unlock()
		if err != nil {
			return fmt.Errorf("a delta is refused: %w", err)
		}
	}
	return nil
}

func (c *Client) fetchSnapshot(ctx context.Context, named Snapshot) error {
	file, err := c.file(ctx, "/snapshot/"+named.SHA256, named.Bytes, downloadAttempts)
	if err != nil {
		return err
	}
	received := Receive(file)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if now, _ := c.state.Wants(); now == nil || *now != named {
		// A newer manifest arrived meanwhile; its snapshot is needed now.
		return nil
	}
	if err := c.state.Snapshot(c.config.Now(), received); err != nil {
		return fmt.Errorf("the snapshot is refused: %w", err)
	}
	c.counts.Snapshots++
	return nil
}

// Counts an error, and returns how long to wait.
func (c *Client) failed(err error, failures int) time.Duration {
	c.mutex.Lock()
	c.counts.Failed++
	var refused *Refused
	if errors.As(err, &refused) || errors.Is(err, ErrUnbelievable) {
		c.counts.Refused++
	}
	c.lastError = err
	c.mutex.Unlock()
	c.config.OnError(err)
	if failures > 16 {
		failures = 16
	}
	pause, most := backoffFirst<<(failures-1), c.period
	if most < backoffFirst {
		most = backoffFirst
	}
	if pause > most {
		pause = most
	}
	return pause
}

func (c *Client) tell() {
	c.mutex.Lock()
	close(c.changed)
	c.changed = make(chan struct{})
	c.mutex.Unlock()
}

// Jitter, so that many clients do not poll at the same moment.
func jittered(pause time.Duration) time.Duration {
	var random [2]byte
	// Without random numbers there is no jitter, which is acceptable.
	_, _ = rand.Read(random[:])
	share := 0.8 + 0.4*float64(binary.LittleEndian.Uint16(random[:]))/math.MaxUint16
	pause = time.Duration(float64(pause) * share)
	if pause < pauseMin {
		return pauseMin
	}
	return pause
}

func sleep(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
