package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"k8s.io/utils/clock"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

const (
	// retries of a notice, after its first attempt.
	retries = 4
	// attemptTimeout bounds each attempt, totalTimeout a notice with all of its attempts and waits.
	attemptTimeout = 10 * time.Second
	totalTimeout   = 10 * time.Minute
	// firstWait is about how long the first retry waits. Each later one waits twice as long.
	firstWait = 2 * time.Second
	// longestWait bounds what a receiver may ask for by Retry-After.
	longestWait = 5 * time.Minute
)

// sender posts to a URL that it tells nobody.
type sender struct {
	client *retryablehttp.Client
	total  time.Duration
}

func newSender(clk clock.PassiveClock) *sender {
	client := retryablehttp.NewClient()
	client.Logger = nil // it writes URLs
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	client.RetryMax, client.RetryWaitMin, client.RetryWaitMax = retries, firstWait, longestWait
	client.CheckRetry = retry
	client.Backoff = func(first, longest time.Duration, attempt int, response *http.Response) time.Duration {
		return min(max(backoff(first, attempt, rand.Float64()), retryAfter(response, clk.Now())), longest)
	}
	client.HTTPClient = &http.Client{
		Timeout: attemptTimeout,
		// Notices are hours apart, and no goroutine of a connection is to outlive Start.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		// A redirect is an answer like any other: what a notice says goes where the Secret says, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &sender{client: client, total: totalTimeout}
}

// send posts a body to the URL in a file. Its errors hold nothing of the URL.
func (s *sender) send(ctx context.Context, urlFile string, body []byte) error {
	target, err := readURL(urlFile)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.total)
	defer cancel()
	request, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, target, body)
	if err != nil {
		return errNoURL(urlFile) // not err: it holds the URL
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", v1alpha1.ControllerName)
	response, err := s.client.Do(request)
	if response != nil {
		defer response.Body.Close() //nolint:errcheck // nothing of it is read
	}
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("given up after %s: the receiver did not take it, or asked for more time than that", s.total)
	case err != nil:
		return errors.New(blind(err))
	case response.StatusCode/100 == 2:
		return nil
	}
	return errors.New(answered(response.StatusCode))
}

// readURL reads a webhook's URL. Its errors hold nothing of what the file holds.
func readURL(file string) (string, error) {
	data, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("urlFile %s is not there: mount the Secret that holds the URL", file)
	case err != nil:
		return "", fmt.Errorf("urlFile: %w", err)
	}
	written := strings.TrimSpace(string(data))
	parsed, err := url.Parse(written)
	if err != nil || (parsed.Scheme != "https" && parsed.Scheme != "http") || parsed.Hostname() == "" {
		return "", errNoURL(file)
	}
	return written, nil
}

func errNoURL(file string) error {
	return fmt.Errorf("urlFile %s holds no URL: want one that begins with https:// or http://, and nothing else", file)
}

// retry says whether an attempt is worth another.
func retry(ctx context.Context, response *http.Response, err error) (bool, error) {
	if ctx.Err() != nil || err != nil {
		// No retry when the time is over, or for a certificate that will be as wrong the next time.
		return retryablehttp.DefaultRetryPolicy(ctx, response, err)
	}
	return retryable(response.StatusCode), nil
}

func retryable(status int) bool { return status == http.StatusTooManyRequests || status >= 500 }

// backoff is how long to wait after an attempt, counted from 0. random is at least 0 and less than 1.
func backoff(first time.Duration, attempt int, random float64) time.Duration {
	longest := first << attempt
	return longest/2 + time.Duration(random*float64(longest/2))
}

// retryAfter is how long a receiver asks to be left alone: in seconds, or until a date (RFC 9110, 10.2.3).
func retryAfter(response *http.Response, now time.Time) time.Duration {
	if response == nil {
		return 0
	}
	header := response.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(header, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestWait/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(header); err == nil {
		return date.Sub(now)
	}
	return 0
}

// answered says what an answer other than success means.
func answered(status int) string {
	said := fmt.Sprintf("the receiver answered %d %s", status, http.StatusText(status))
	switch {
	case retryable(status):
		return fmt.Sprintf("%s, %d times", said, retries+1)
	case status/100 == 3:
		return said + ": redirects are not followed, put the URL that it leads to into urlFile"
	}
	return said + ": look at whether the URL in urlFile is still valid, and takes this format"
}

// blind says what went wrong in words of our own: the error's may hold the URL, its host, or what the host resolved to.
func blind(err error) string {
	var unresolved *net.DNSError
	var untrusted *tls.CertificateVerificationError
	var timeout interface{ Timeout() bool }
	said := "the connection could not be made, or broke"
	switch {
	case errors.As(err, &untrusted):
		return "the receiver's certificate is not trusted"
	case errors.As(err, &unresolved):
		said = "the host of the URL could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		said = "the connection was refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		said = fmt.Sprintf("no answer within %s", attemptTimeout)
	}
	return fmt.Sprintf("%s, %d times", said, retries+1)
}
