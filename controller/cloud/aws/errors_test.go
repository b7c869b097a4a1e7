package aws

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// What EC2 says, as public issues and logs quote it. Account ids are invented.
const (
	saysVCPU = "You have requested more vCPU capacity than your current vCPU limit of 64 allows for the instance bucket that " +
		"the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
	saysUnauthorized = "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/gpufleet/1722511821294449000 " +
		"is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:123456789012:instance/* because no " +
		"identity-based policy allows the ec2:RunInstances action. Encoded authorization failure message: " +
		"T-kSWIRFn32_fxSgyNzoE36avE5lRaRniAjDs-OdhlNgyecEbeTN_dCroUmnEqAbDOrevkgWv8iyUzs0XJxEDlAcgDztlJ-QPNokwAE1JUrWPZcL"
)

func TestLaunch_GivesEachRefusalItsClassAfterOneAttempt(t *testing.T) {
	for _, tc := range []struct {
		status  int
		code    string
		message string
		want    cloud.Class
	}{
		// HTTP 500: the SDK's own policy would make three attempts of it.
		{500, "InsufficientInstanceCapacity", "We currently do not have sufficient p5.48xlarge capacity in the Availability Zone you requested (us-east-1a).", cloud.ClassCapacity},
		{400, "Unsupported", "Your requested instance type (p5e.48xlarge) is not supported in your requested Availability Zone (us-east-1a).", cloud.ClassCapacity},
		{400, "SpotMaxPriceTooLow", "Your Spot request price of 0.02 is lower than the minimum required Spot request fulfillment price of 0.0375.", cloud.ClassCapacity},
		{500, "UnfulfillableCapacity", "Unable to fulfill capacity due to your request configuration.", cloud.ClassCapacity},
		{400, "InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet 'subnet-0a1b2c3d4e5f60001' to satisfy the requested number of instances.", cloud.ClassCapacity},
		{400, "InsufficientCapacityOnHost", "There is not enough capacity on the Dedicated Host.", cloud.ClassCapacity},
		{500, "InsufficientHostCapacity", "There is not enough capacity to fulfill your Dedicated Host request.", cloud.ClassCapacity},

		{400, "VcpuLimitExceeded", saysVCPU, cloud.ClassQuota},
		{400, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", cloud.ClassQuota},
		{400, "InstanceLimitExceeded", "Your quota allows for 0 more running instance(s).", cloud.ClassQuota},
		{400, "VolumeLimitExceeded", "You have exceeded your maximum gp3 storage limit of 50 TiB in this region.", cloud.ClassQuota},

		{400, "ReservationCapacityExceeded", "The requested reservation does not have sufficient compatible and available capacity for this request.", cloud.ClassReservation},
		{400, "InvalidCapacityReservationId.NotFound", "The capacity reservation ID 'cr-0a1b2c3d4e5f60001' does not exist.", cloud.ClassReservation},
		{400, "InvalidCapacityReservationState.Unavailable", "The capacity reservation is not active.", cloud.ClassReservation},

		{403, "UnauthorizedOperation", saysUnauthorized, cloud.ClassUnauthorised},
		{401, "AuthFailure", "AWS was not able to validate the provided access credentials", cloud.ClassUnauthorised},
		{400, "AuthFailure.ServiceLinkedRoleCreationNotPermitted", "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances.", cloud.ClassUnauthorised},
		{400, "PendingVerification", "Your request for accessing resources in this region is being validated.", cloud.ClassUnauthorised},
		{401, "OptInRequired", "You are not subscribed to this service.", cloud.ClassUnauthorised},

		{503, "RequestLimitExceeded", "Request limit exceeded.", cloud.ClassThrottled},
		{400, "Throttling", "Rate exceeded", cloud.ClassThrottled},
		{429, "SomethingNew", "slow down", cloud.ClassThrottled},

		{400, "IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).", cloud.ClassTokenReused},
		{400, "IdempotentInstanceTerminated", "The client token you have provided is associated with a resource that is already deleted.", cloud.ClassTokenReused},

		{400, "InvalidAMIID.NotFound", "The image id '[ami-0ffffffffffffffff]' does not exist", cloud.ClassInvalid},
		{400, "InvalidParameterValue", "Value (gpufleet-node) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", cloud.ClassInvalid},
		{400, "SomethingNew", "no", cloud.ClassInvalid},

		{500, "InternalError", "An internal error has occurred", cloud.ClassTransient},
		{503, "Unavailable", "The service is unavailable. Please try again shortly.", cloud.ClassTransient},
		{502, "SomethingNew", "", cloud.ClassTransient},
	} {
		t.Run(tc.code+"_"+http.StatusText(tc.status), func(t *testing.T) {
			c, e := serve(t, refusal(tc.status, tc.code, tc.message))
			_, err := c.Launch(t.Context(), launch())
			var got *cloud.Error
			if !errors.As(err, &got) {
				t.Fatalf("Launch returned %v, want a *cloud.Error", err)
			}
			if got.Class != tc.want || got.Code != tc.code || got.Operation != "RunInstances" {
				t.Errorf("got class %s, code %s, operation %s; want %s, %s, RunInstances", got.Class, got.Code, got.Operation, tc.want, tc.code)
			}
			if calls := len(e.received()); calls != 1 {
				t.Errorf("the request went out %d times, want once", calls)
			}
			assertClean(t, err)
		})
	}
}

func TestLaunch_AnUnknownOutcomeIsTransient(t *testing.T) {
	for name, tc := range map[string]struct {
		answer answer
		is     error
	}{
		"connection closed before the answer": {is: io.EOF, answer: func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				err = conn.Close()
			}
			if err != nil {
				t.Errorf("closing the connection: %v", err)
			}
		}},
		"answer cut short":         {answer: xmlAnswer(200, `<RunInstancesResponse><instancesSet><item><instan`)},
		"answer without instances": {answer: xmlAnswer(200, `<RunInstancesResponse><instancesSet/></RunInstancesResponse>`)},
		"not EC2 that answers":     {answer: xmlAnswer(502, `<html><body>Bad Gateway</body></html>`)},
	} {
		t.Run(name, func(t *testing.T) {
			c, e := serve(t, tc.answer)
			_, err := c.Launch(t.Context(), launch())
			assertTransient(t, err, tc.is)
			if calls := len(e.received()); calls != 1 {
				t.Errorf("the request went out %d times, want once", calls)
			}
		})
	}
}

func TestLaunch_GivenUpWhileEC2Works_IsTransient(t *testing.T) {
	for name, tc := range map[string]struct {
		end func(context.Context) (context.Context, context.CancelFunc)
		is  error
	}{
		"deadline": {is: context.DeadlineExceeded, end: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 100*time.Millisecond)
		}},
		"shutdown": {is: context.Canceled, end: context.WithCancel},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := tc.end(t.Context())
			defer cancel()
			c, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
				if errors.Is(tc.is, context.Canceled) {
					cancel()
				}
				<-r.Context().Done()
			})
			_, err := c.Launch(ctx, launch())
			assertTransient(t, err, tc.is)
		})
	}
}

func assertTransient(t *testing.T, err, is error) {
	t.Helper()
	if err == nil || cloud.ClassOf(err) != cloud.ClassTransient {
		t.Errorf("got %v, want an error of class %s", err, cloud.ClassTransient)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%v does not wrap %v", err, is)
	}
}

// C05 (kaito-project/kaito PR#2203): "quota exceeded" must say which quota, to whoever reads the pool.
func TestC05_QuotaErrorNamesFamilyAndQuotaAndNoAccount(t *testing.T) {
	for _, tc := range []struct {
		instanceType string
		capacityType v1alpha1.CapacityType
		code         string
		message      string
		want         []string
	}{
		{"p5.48xlarge", v1alpha1.CapacityTypeOnDemand, "VcpuLimitExceeded", saysVCPU, []string{"limit of 64", "p5.48xlarge", "L-417A185B", "Running On-Demand P instances"}},
		{"g6.12xlarge", v1alpha1.CapacityTypeOnDemand, "VcpuLimitExceeded", saysVCPU, []string{"g6.12xlarge", "L-DB2E81BA", "Running On-Demand G and VT instances"}},
		{"gr6.4xlarge", v1alpha1.CapacityTypeSpot, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", []string{"L-3819A6DF", "All G and VT Spot Instance Requests"}},
		{"p4d.24xlarge", v1alpha1.CapacityTypeSpot, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", []string{"L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"}},
		{"p5en.48xlarge", v1alpha1.CapacityTypeSpot, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded", []string{"L-C4BD4855", "All P5 Spot Instance Requests"}},
		{"p6-b200.48xlarge", v1alpha1.CapacityTypeSpot, "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded in account 123456789012", []string{"(p6-b200.48xlarge, spot)"}},
	} {
		t.Run(tc.instanceType+" "+string(tc.capacityType), func(t *testing.T) {
			c, _ := serve(t, refusal(400, tc.code, tc.message))
			req := launch()
			req.InstanceType, req.CapacityType = tc.instanceType, tc.capacityType
			_, err := c.Launch(t.Context(), req)
			if cloud.ClassOf(err) != cloud.ClassQuota {
				t.Fatalf("got %v, want class %s", err, cloud.ClassQuota)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			assertClean(t, err)
		})
	}
}

func TestErrors_SayWhoWasRefusedWithoutAccountAndEncodedReason(t *testing.T) {
	c, _ := serve(t, refusal(403, "UnauthorizedOperation", saysUnauthorized))
	_, err := c.List(t.Context(), "prod")
	assertClean(t, err)
	const want = "DescribeInstances: Unauthorised: UnauthorizedOperation: You are not authorized to perform this operation. " +
		"User: arn:aws:sts::<account>:assumed-role/gpufleet/1722511821294449000 is not authorized to perform: ec2:RunInstances on " +
		"resource: arn:aws:ec2:us-east-1:<account>:instance/* because no identity-based policy allows the ec2:RunInstances action. " +
		"Encoded authorization failure message: <removed>"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestScrub_LeavesIDsThatAreNoAccounts(t *testing.T) {
	for in, want := range map[string]string{
		"account 123456789012 is blocked":           "account <account> is blocked",
		"role_123456789012_x":                       "role_<account>_x",
		"i-0123456789012abcd":                       "i-0123456789012abcd",
		"ami-123456789012abcde":                     "ami-123456789012abcde",
		"13 digits 1234567890123, 11 12345678901":   "13 digits 1234567890123, 11 12345678901",
		"encoded authorisation failure message: a_": "encoded authorisation failure message: <removed>",
	} {
		if got := scrub(in); got != want {
			t.Errorf("scrub(%q) = %q, want %q", in, got, want)
		}
	}
}

var (
	anyAccount = regexp.MustCompile(`(^|[^0-9A-Za-z])[0-9]{12}([^0-9A-Za-z]|$)`)
	anyEncoded = regexp.MustCompile(`[A-Za-z0-9_-]{64,}`)
)

// assertClean looks at the error, its message and everything that it prints underneath.
func assertClean(t *testing.T, err error) {
	t.Helper()
	texts := []string{err.Error()}
	var cloudErr *cloud.Error
	if errors.As(err, &cloudErr) {
		texts = append(texts, cloudErr.Message, cloudErr.Unwrap().Error())
	}
	for _, text := range texts {
		if anyAccount.MatchString(text) {
			t.Errorf("an account id is in %q", text)
		}
		if anyEncoded.MatchString(text) {
			t.Errorf("an encoded message is in %q", text)
		}
	}
}
