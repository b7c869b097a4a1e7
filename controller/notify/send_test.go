package notify

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/metrics"
)

// posting is a sender that waits for nothing, on a clock that stands.
func posting() (*sender, func() []time.Duration) {
	s := newSender(clocktesting.NewFakePassiveClock(began))
	return s, hurry(s)
}

func TestSend_PostsJSON(t *testing.T) {
	got := receive(t, nil)
	s, _ := posting()
	if err := s.send(t.Context(), secret(t, got.URL), []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`{"a":1}`}, got.got()); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
	if kind := got.heads[0].Get("Content-Type"); kind != "application/json" {
		t.Errorf("Content-Type %q", kind)
	}
}

func TestSend_RetriesWhatMayPass(t *testing.T) {
	for _, tc := range []struct {
		name     string
		answers  []int
		attempts int
		err      string
	}{
		{"success", []int{200}, 1, ""},
		{"no content", []int{204}, 1, ""},
		{"500, then success", []int{500, 200}, 2, ""},
		{"429 and 503, then success", []int{429, 503, 502, 501, 200}, 5, ""},
		{"500 for ever", []int{500}, 5, "the receiver answered 500 Internal Server Error, 5 times"},
		{"429 for ever", []int{429}, 5, "the receiver answered 429 Too Many Requests, 5 times"},
		{"400", []int{400}, 1, "the receiver answered 400 Bad Request: look at whether the URL in urlFile is still valid, and takes this format"},
		{"404", []int{404}, 1, "the receiver answered 404 Not Found: look at whether the URL in urlFile is still valid, and takes this format"},
		{"500, then 403", []int{500, 403}, 2, "the receiver answered 403 Forbidden: look at whether the URL in urlFile is still valid, and takes this format"},
		{"302", []int{302}, 1, "the receiver answered 302 Found: redirects are not followed, put the URL that it leads to into urlFile"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := receive(t, status(tc.answers...))
			s, waits := posting()
			err := s.send(t.Context(), secret(t, got.URL), []byte(`{"a":1}`))
			if said := fmt.Sprint(err); (err == nil) != (tc.err == "") || err != nil && said != tc.err {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if bodies := got.got(); len(bodies) != tc.attempts || bodies[len(bodies)-1] != `{"a":1}` {
				t.Errorf("attempts %q, want %d, each with the whole body", bodies, tc.attempts)
			}
			if n := len(waits()); n != tc.attempts-1 {
				t.Errorf("%d waits, want %d", n, tc.attempts-1)
			}
		})
	}
}

func TestSend_RetriesAConnectionThatBreaks(t *testing.T) {
	got := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n < 2 {
			panic(http.ErrAbortHandler)
		}
	})
	s, _ := posting()
	if err := s.send(t.Context(), secret(t, got.URL), []byte("{}")); err != nil {
		t.Error(err)
	}
	if n := len(got.got()); n != 3 {
		t.Errorf("%d attempts, want 3", n)
	}
}

func TestSend_WaitsLongerEachTimeWithJitter(t *testing.T) {
	got := receive(t, status(500))
	file := secret(t, got.URL)
	seen := map[time.Duration]bool{}
	for range 5 {
		s, waits := posting()
		if err := s.send(t.Context(), file, []byte("{}")); err == nil {
			t.Fatal("no error")
		}
		for i, wait := range waits() {
			if longest := firstWait << i; wait < longest/2 || wait > longest {
				t.Errorf("wait %d is %s, want between %s and %s", i, wait, longest/2, longest)
			}
		}
		seen[waits()[0]] = true
	}
	if len(seen) < 2 {
		t.Errorf("the first wait is always %v: no jitter", seen)
	}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if low, high := backoff(2*time.Second, i, 0), backoff(2*time.Second, i, 0.5); low != want || high != want+want/2 {
			t.Errorf("backoff %d: %s to %s", i, low, high)
		}
	}
}

func TestSend_HonoursRetryAfterWithinBounds(t *testing.T) {
	for _, tc := range []struct {
		name, header string
		status       int
		least, most  time.Duration
	}{
		{"seconds", "30", 429, 30 * time.Second, 30 * time.Second},
		{"seconds, of a server that is down", "30", 503, 30 * time.Second, 30 * time.Second},
		{"a date", began.Add(90 * time.Second).Format(http.TimeFormat), 429, 90 * time.Second, 90 * time.Second},
		{"too long", "86400", 429, 5 * time.Minute, 5 * time.Minute},
		{"a date too far", began.Add(24 * time.Hour).Format(http.TimeFormat), 503, 5 * time.Minute, 5 * time.Minute},
		{"more than there are seconds", "99999999999999999999999", 429, 5 * time.Minute, 5 * time.Minute},
		{"shorter than we would wait", "0", 429, firstWait / 2, firstWait},
		{"a date that is over", began.Add(-time.Hour).Format(http.TimeFormat), 429, firstWait / 2, firstWait},
		{"negative", "-5", 429, firstWait / 2, firstWait},
		{"nonsense", "soon", 429, firstWait / 2, firstWait},
		{"none", "", 429, firstWait / 2, firstWait},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 0 {
					w.Header().Set("Retry-After", tc.header)
					w.WriteHeader(tc.status)
				}
			})
			s, waits := posting()
			if err := s.send(t.Context(), secret(t, got.URL), []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if all := waits(); len(all) != 1 || all[0] < tc.least || all[0] > tc.most {
				t.Errorf("waits %v, want one of %s to %s", all, tc.least, tc.most)
			}
		})
	}
}

func TestSend_GivesUpWhenItsTotalTimeIsOver(t *testing.T) {
	got := receive(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(429)
	})
	s := newSender(clocktesting.NewFakePassiveClock(began)) // waits as it is asked to
	s.total = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := s.send(ctx, secret(t, got.URL), []byte("{}"))
	if err == nil || !strings.Contains(err.Error(), "given up after 50ms") || ctx.Err() != nil {
		t.Errorf("error %v, and the test's own 20 s: %v", err, ctx.Err())
	}
	if n := len(got.got()); n != 1 {
		t.Errorf("%d attempts, want 1: the receiver asked for 5 minutes", n)
	}
	if s := newSender(clocktesting.NewFakePassiveClock(began)); s.total != 10*time.Minute || s.client.HTTPClient.Timeout != 10*time.Second {
		t.Errorf("a notice has %s, an attempt %s; want 10m and 10s", s.total, s.client.HTTPClient.Timeout)
	}
}

func TestSend_FollowsNoRedirect(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			elsewhere := receive(t, nil)
			got := receive(t, func(_ int, w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL+"/T0SECRET", code)
			})
			s, _ := posting()
			err := s.send(t.Context(), secret(t, got.URL), []byte("{}"))
			if err == nil || strings.Contains(err.Error(), "T0SECRET") {
				t.Errorf("error %v: want one without the address", err)
			}
			if n := len(elsewhere.got()); n != 0 {
				t.Errorf("the other host got %d requests", n)
			}
		})
	}
}

func TestSend_ReadsTheURLEachTime(t *testing.T) {
	first, second := receive(t, nil), receive(t, nil)
	file := secret(t, first.URL)
	s, _ := posting()
	for _, rotated := range []string{first.URL, second.URL} {
		if err := os.WriteFile(file, []byte("  "+rotated+"\n\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.send(t.Context(), file, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := len(first.got()), len(second.got()); a != 1 || b != 1 {
		t.Errorf("the old URL got %d, the new %d; want 1 each", a, b)
	}
}

// leaky is a URL with a secret in each of its parts, at a server.
func leaky(at string) string {
	parsed, err := url.Parse(at)
	if err != nil {
		panic(err)
	}
	parsed.User = url.UserPassword("user-s3cr3t", "password-s3cr3t")
	parsed.Path, parsed.RawQuery, parsed.Fragment = "/services/path-s3cr3t", "token=query-s3cr3t", "fragment-s3cr3t"
	return parsed.String()
}

// overhear returns what is written to standard error and to the standard logger, by whoever got hold of either before.
func overhear(t *testing.T) func() string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	before := *os.Stderr
	*os.Stderr = *file
	t.Cleanup(func() { *os.Stderr = before })
	return func() string {
		data, err := os.ReadFile(file.Name())
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
}

// Whatever goes wrong: nothing of the URL is in a log, an error or a metric, nor the host that it leads to.
func TestNothingSaysTheURL(t *testing.T) {
	at := func(answer answer) func(*testing.T) string {
		return func(t *testing.T) string { return leaky(receive(t, answer).URL) }
	}
	as := func(url string) func(*testing.T) string { return func(*testing.T) string { return url } }
	for _, tc := range []struct {
		name, says string
		url        func(*testing.T) string
		prepare    func(*http.Client)
	}{
		{name: "success", says: "sent a notice", url: at(nil)},
		{name: "not a URL", says: "holds no URL", url: as("http://s3cr3t host/%zz")},
		{name: "a control character", says: "holds no URL", url: as("http://127.0.0.1/s3cr3t\x7f")},
		{name: "two lines", says: "holds no URL", url: as("http://127.0.0.1/s3cr3t\nhttp://127.0.0.1/s3cr3t")},
		{name: "another scheme", says: "holds no URL", url: as("ftp://user:s3cr3t@127.0.0.1/s3cr3t")},
		{name: "only a token", says: "holds no URL", url: as("s3cr3t")},
		{name: "a port that is none", says: "holds no URL", url: as("http://127.0.0.1:s3cr3t/")},
		{name: "a port that is too high", says: "the connection could not be made, or broke", url: as("http://127.0.0.1:99999/s3cr3t")},
		{name: "a refused connection", says: "the connection was refused, 5 times", url: func(t *testing.T) string {
			gone := receive(t, nil)
			gone.Close()
			return leaky(gone.URL)
		}},
		{name: "a host that there is not", says: "the host of the URL could not be resolved", url: as(leaky("http://host-s3cr3t.invalid")),
			prepare: func(c *http.Client) {
				c.Transport = &http.Transport{DialContext: func(_ context.Context, _, at string) (net.Conn, error) {
					return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: at, Server: "127.0.0.1:53", IsNotFound: true}}
				}}
			}},
		{name: "no TLS where https is asked for", says: "the connection could not be made, or broke", url: func(t *testing.T) string {
			return strings.Replace(leaky(receive(t, nil).URL), "http://", "https://", 1)
		}},
		{name: "a certificate that is not trusted", says: "the receiver's certificate is not trusted", url: func(t *testing.T) string {
			return leaky(listen(t, true, nil).URL)
		}},
		{name: "a broken connection", says: "the connection could not be made, or broke",
			url: at(func(int, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
		{name: "500", says: "500 Internal Server Error, 5 times", url: at(status(500))},
		{name: "429 with Retry-After", says: "429 Too Many Requests, 5 times", url: at(func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
		})},
		{name: "404 that repeats the URL", says: "404 Not Found", url: at(func(_ int, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(404)
			fmt.Fprintf(w, "no such webhook: http://%s%s", r.Host, r.URL)
		})},
		{name: "a redirect to itself", says: "redirects are not followed", url: at(func(_ int, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String()+"&again=s3cr3t", http.StatusTemporaryRedirect)
		})},
		{name: "a redirect to what is no URL", says: "could not send a notice", url: at(func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://s3cr3t host/%zz")
			w.WriteHeader(http.StatusFound)
		})},
		{name: "no answer", says: "no answer within 10s, 5 times", url: at(func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
			prepare: func(c *http.Client) { c.Timeout = 20 * time.Millisecond }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			heard := overhear(t)
			config := oncall(t)
			config.MinHeld, config.URLFile = 0, secret(t, tc.url(t))
			r := ready(t, config)
			if tc.prepare != nil {
				tc.prepare(r.webhooks[0].sender.client.HTTPClient)
			}
			r.start(t)
			r.Notify(full("inference", 1))
			eventually(t, "something is said of the notice", func() bool { return strings.Contains(r.logs.String(), "a notice") })
			r.stop()
			all := r.logs.String() + "\n" + heard()
			if !strings.Contains(all, tc.says) {
				t.Errorf("%q is not said:\n%s", tc.says, all)
			}
			for _, part := range []string{"s3cr3t", "127.0.0.1", "services"} {
				if strings.Contains(all, part) {
					t.Errorf("%q is said:\n%s", part, all)
				}
			}
			if sent, failed := counted(t, config.Name, metrics.ResultSent), counted(t, config.Name, metrics.ResultFailed); sent+failed != 1 || (sent == 1) != (tc.name == "success") {
				t.Errorf("%d sent, %d failed", sent, failed)
			}
		})
	}
}

func TestAURLFileThatIsNotThere_IsSaidAndTriedAgain(t *testing.T) {
	got := receive(t, nil)
	config := oncall(t)
	config.MinHeld, config.URLFile = 0, filepath.Join(t.TempDir(), "url")
	r := ready(t, config).start(t)
	eventually(t, "said at the start", func() bool { return strings.Contains(r.logs.String(), "cannot be told of anything yet") })
	r.Notify(full("inference", 1))
	eventually(t, "counted", func() bool { return counted(t, config.Name, metrics.ResultFailed) == 1 })
	if said := r.logs.String(); !strings.Contains(said, "urlFile "+config.URLFile+" is not there: mount the Secret") {
		t.Errorf("said:\n%s", said)
	}
	if err := os.WriteFile(config.URLFile, []byte(got.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	r.pass(t, firstRest)
	eventually(t, "sent", func() bool { return len(got.got()) == 1 })
}
