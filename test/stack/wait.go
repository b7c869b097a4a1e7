package stack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

const (
	// readyTimeout bounds each wait for a process; alone on two cores the slowest takes 3 s.
	readyTimeout = 2 * time.Minute
	pollInterval = 50 * time.Millisecond
)

// Pause waits, or returns the context's error as soon as that ends.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// until asks check again and again until it returns nil. It gives up when the context ends, when the timeout passes, or
// when one of the processes dies (died may be nil), and says what it waited for.
func until(ctx context.Context, what string, died <-chan error, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("%s passed", readyTimeout))
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; the last answer: %w", what, context.Cause(ctx), err)
		case dead := <-died:
			return fmt.Errorf("waiting for %s: %w", what, dead)
		case <-ticker.C:
		}
	}
}

// Healthy asks a health endpoint of the stack and returns nil when the answer is 200. Certificates are not verified:
// the scheduler's and the controller manager's are self-signed, and nothing but loopback is asked.
func Healthy(ctx context.Context, url string) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // nothing is lost: the body has been read
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s: %s", url, response.Status, body)
	}
	return nil
}

// Ports below the range from which Linux takes the source ports of outgoing connections (32768 and up): a port of that
// range can be taken again between our look and the child's bind.
const firstPort, lastPort = 20000, 32000

// freePorts finds n loopback ports that nobody listens on. It starts at a random one, so that two stacks that start at
// the same moment rarely meet.
func freePorts(n int) ([]int, error) {
	var ports []int
	port := firstPort + rand.IntN(lastPort-firstPort)
	for range lastPort - firstPort {
		if len(ports) == n {
			return ports, nil
		}
		listener, err := net.Listen("tcp4", loopback(port))
		if err == nil {
			err = listener.Close()
		}
		if err == nil {
			ports = append(ports, port)
		}
		if port++; port == lastPort {
			port = firstPort
		}
	}
	return nil, fmt.Errorf("looking for %d free loopback ports from %d to %d: found %d; end what listens there", n, firstPort, lastPort, len(ports))
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
