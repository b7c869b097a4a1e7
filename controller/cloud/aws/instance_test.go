package aws

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

func describeAnswer(nextToken string, items ...string) answer {
	return xmlAnswer(200, fmt.Sprintf(`<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">`+
		`<reservationSet><item><instancesSet>%s</instancesSet></item></reservationSet><nextToken>%s</nextToken></DescribeInstancesResponse>`,
		strings.Join(items, ""), nextToken))
}

func item(id, state string) string {
	return strings.NewReplacer("i-0a1b2c3d4e5f60001", id, ">pending<", ">"+state+"<").Replace(instanceItem)
}

func ids(instances []cloud.Instance) []string {
	var out []string
	for _, instance := range instances {
		out = append(out, instance.ID)
	}
	return out
}

func TestList_AsksForOurClusterAndReadsEveryPage(t *testing.T) {
	c, e := serve(t, describeAnswer("page-2", item("i-01", "running"), item("i-02", "stopped")), describeAnswer("", item("i-03", "pending")))
	got, err := c.List(t.Context(), "prod")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"i-01", "i-02", "i-03"}; !slices.Equal(ids(got), want) {
		t.Errorf("got %v, want %v", ids(got), want)
	}
	calls := e.received()
	if len(calls) != 2 || calls[1].form.Get("NextToken") != "page-2" {
		t.Fatalf("%d calls, the last for page %q; want 2 and page-2", len(calls), calls[len(calls)-1].form.Get("NextToken"))
	}
	want := map[string]string{
		"Action": "DescribeInstances", "Version": "2016-11-15", "MaxResults": "1000",
		"Filter.1.Name": "tag:gpufleet.dev/cluster", "Filter.1.Value.1": "prod",
		"Filter.2.Name": "instance-state-name", "Filter.2.Value.1": "pending", "Filter.2.Value.2": "running",
		"Filter.2.Value.3": "shutting-down", "Filter.2.Value.4": "stopping", "Filter.2.Value.5": "stopped",
	}
	if diff := cmp.Diff(want, formOf(t, calls[0])); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestList_FailsClosedWhenALaterPageFails(t *testing.T) {
	c, _ := serve(t, describeAnswer("page-2", item("i-01", "running")), refusal(400, "InvalidNextToken", "The token is not valid"))
	got, err := c.List(t.Context(), "prod")
	if got != nil || cloud.ClassOf(err) != cloud.ClassInvalid {
		t.Errorf("got %v and %v, want no instances and an error", ids(got), err)
	}
}

func TestList_IsRetriedByTheSDK(t *testing.T) {
	c, e := serve(t, refusal(503, "Unavailable", "Try again."), describeAnswer("", item("i-01", "running")))
	got, err := c.List(t.Context(), "prod")
	if err != nil || len(got) != 1 || len(e.received()) != 2 {
		t.Errorf("got %v and %v after %d calls, want one instance after 2", ids(got), err, len(e.received()))
	}
}

func TestFindByToken_AsksForTheTokenInAnyState(t *testing.T) {
	c, e := serve(t, describeAnswer("", item("i-01", "terminated")))
	got, err := c.FindByToken(t.Context(), "token-1")
	if err != nil || got.ID != "i-01" || !got.State.Gone() {
		t.Errorf("got %+v and %v, want i-01, terminated", got, err)
	}
	want := map[string]string{
		"Action": "DescribeInstances", "Version": "2016-11-15",
		"Filter.1.Name": "client-token", "Filter.1.Value.1": "token-1",
	}
	if diff := cmp.Diff(want, formOf(t, e.received()[0])); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
}

func TestFindByToken_PrefersTheInstanceThatStillCosts(t *testing.T) {
	c, _ := serve(t, describeAnswer("", item("i-01", "terminated"), item("i-02", "running")))
	if got, err := c.FindByToken(t.Context(), "token-1"); err != nil || got.ID != "i-02" {
		t.Errorf("got %s and %v, want i-02", got.ID, err)
	}
}

func TestFindByToken_SaysNotFound(t *testing.T) {
	c, _ := serve(t, describeAnswer(""))
	if _, err := c.FindByToken(t.Context(), "token-1"); !errors.Is(err, cloud.ErrNotFound) || !strings.Contains(err.Error(), "token-1") {
		t.Errorf("got %v, want ErrNotFound with the token", err)
	}
}

func TestDescribe_ReturnsATerminatedInstanceWithItsReason(t *testing.T) {
	for name, tc := range map[string]struct{ code, message, want string }{
		"code repeated": {"Server.InsufficientInstanceCapacity", "Server.InsufficientInstanceCapacity: Insufficient capacity to satisfy instance request", "Server.InsufficientInstanceCapacity: Insufficient capacity to satisfy instance request"},
		"code apart":    {"Client.VolumeLimitExceeded", "Volume limit exceeded in 123456789012", "Client.VolumeLimitExceeded: Volume limit exceeded in <account>"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := strings.Replace(instanceItem, "<code>pending</code><message>pending</message>",
				"<code>"+tc.code+"</code><message>"+tc.message+"</message>", 1)
			raw = strings.Replace(raw, "<name>pending</name>", "<name>terminated</name>", 1)
			c, _ := serve(t, describeAnswer("", raw))
			got, err := c.Describe(t.Context(), "i-0a1b2c3d4e5f60001")
			want := instance()
			want.State, want.StateReason = cloud.StateTerminated, tc.want
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("error %v, instance (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestDescribeAndTerminate_SayNotFound(t *testing.T) {
	unknown := refusal(400, "InvalidInstanceID.NotFound", "The instance ID 'i-0ffffffffffffffff' does not exist")
	for name, tc := range map[string]struct {
		answer answer
		call   func(*Cloud) error
	}{
		"describe": {unknown, func(c *Cloud) error { _, err := c.Describe(t.Context(), "i-0ffffffffffffffff"); return err }},
		"describe, empty answer": {describeAnswer(""), func(c *Cloud) error {
			_, err := c.Describe(t.Context(), "i-0ffffffffffffffff")
			return err
		}},
		"terminate": {unknown, func(c *Cloud) error { return c.Terminate(t.Context(), "i-0ffffffffffffffff") }},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, tc.answer)
			if err := tc.call(c); !errors.Is(err, cloud.ErrNotFound) || !strings.Contains(err.Error(), "i-0ffffffffffffffff") {
				t.Errorf("got %v, want ErrNotFound with the id", err)
			}
		})
	}
}

// An empty filter or id list means "everything" to EC2.
func TestReads_NeverAskForEverything(t *testing.T) {
	c, e := serve(t, describeAnswer("", item("i-01", "running")))
	_, describe := c.Describe(t.Context(), "")
	_, list := c.List(t.Context(), "")
	_, find := c.FindByToken(t.Context(), "")
	for name, err := range map[string]error{"Describe": describe, "List": list, "FindByToken": find, "Terminate": c.Terminate(t.Context(), "")} {
		if cloud.ClassOf(err) != cloud.ClassInvalid {
			t.Errorf("%s of nothing: %v, want class %s", name, err, cloud.ClassInvalid)
		}
	}
	if calls := e.received(); len(calls) != 0 {
		t.Errorf("%d calls went out, want none", len(calls))
	}
}

func TestProviderID_RoundTripsAndRefusesOthers(t *testing.T) {
	providerID := ProviderID("us-east-1a", "i-0a1b2c3d4e5f60001")
	if want := "aws:///us-east-1a/i-0a1b2c3d4e5f60001"; providerID != want {
		t.Errorf("got %s, want %s", providerID, want)
	}
	zone, id, err := ParseProviderID(providerID)
	if err != nil || zone != "us-east-1a" || id != "i-0a1b2c3d4e5f60001" {
		t.Errorf("got %s, %s, %v", zone, id, err)
	}
	for _, other := range []string{
		"", "i-0a", "aws:///", "aws:///us-east-1a", "aws:///us-east-1a/", "aws:////i-0a", "aws:///us-east-1a/i-",
		"aws:///us-east-1a/x-0a", "aws:///us-east-1a/i-0a/b", "gce:///us-east-1a/i-0a", "aws://us-east-1a/i-0a",
	} {
		if zone, id, err := ParseProviderID(other); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", other)) {
			t.Errorf("%q gave %s, %s, %v; want an error that quotes it", other, zone, id, err)
		}
	}
}
