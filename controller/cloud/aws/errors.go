package aws

import (
	"errors"
	"net/http"
	"regexp"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/cloud"
)

// codeInstanceNotFound is EC2's answer about an instance that it does not know, or not yet, or no longer.
const codeInstanceNotFound = "InvalidInstanceID.NotFound"

// classes gives the class of each error code that RunInstances, its neighbours and SSM are known to answer. Throttling codes
// come from the SDK's own table. What is in neither is classed by its HTTP status.
//
// Sources: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, and for what deserves another
// zone https://github.com/aws/karpenter-provider-aws, pkg/errors/errors.go.
var classes = map[string]cloud.Class{
	"InsufficientInstanceCapacity": cloud.ClassCapacity,
	"InsufficientHostCapacity":     cloud.ClassCapacity,
	"InsufficientCapacityOnHost":   cloud.ClassCapacity,
	"InsufficientCapacity":         cloud.ClassCapacity,
	"InsufficientVolumeCapacity":   cloud.ClassCapacity,
	"UnfulfillableCapacity":        cloud.ClassCapacity,
	"SpotMaxPriceTooLow":           cloud.ClassCapacity,
	// Unsupported is a type that is not sold in the zone: of that, too, the zone has none.
	"Unsupported": cloud.ClassCapacity,
	// A subnet without addresses shuts one zone, as a shortage does.
	"InsufficientFreeAddressesInSubnet": cloud.ClassCapacity,

	"VcpuLimitExceeded":                cloud.ClassQuota,
	"MaxSpotInstanceCountExceeded":     cloud.ClassQuota,
	"MaxSpotFleetRequestCountExceeded": cloud.ClassQuota,
	"MaxFleetCountExceeded":            cloud.ClassQuota,
	"InstanceLimitExceeded":            cloud.ClassQuota,
	"VolumeLimitExceeded":              cloud.ClassQuota,
	"MaxIOPSLimitExceeded":             cloud.ClassQuota,
	"NetworkInterfaceLimitExceeded":    cloud.ClassQuota,
	"ResourceLimitExceeded":            cloud.ClassQuota,

	"ReservationCapacityExceeded":                   cloud.ClassReservation,
	"InvalidCapacityReservationState":               cloud.ClassReservation,
	"InvalidCapacityReservationState.Unavailable":   cloud.ClassReservation,
	"InvalidCapacityReservationId.NotFound":         cloud.ClassReservation,
	"InvalidCapacityReservationIdNotFoundException": cloud.ClassReservation,

	"AuthFailure": cloud.ClassUnauthorised,
	"AuthFailure.ServiceLinkedRoleCreationNotPermitted": cloud.ClassUnauthorised,
	"UnauthorizedOperation":                             cloud.ClassUnauthorised,
	"AccessDenied":                                      cloud.ClassUnauthorised,
	"AccessDeniedException":                             cloud.ClassUnauthorised,
	"OptInRequired":                                     cloud.ClassUnauthorised,
	"Blocked":                                           cloud.ClassUnauthorised,
	"PendingVerification":                               cloud.ClassUnauthorised,
	"InvalidClientTokenId":                              cloud.ClassUnauthorised,
	"UnrecognizedClientException":                       cloud.ClassUnauthorised,
	"SignatureDoesNotMatch":                             cloud.ClassUnauthorised,
	"IncompleteSignature":                               cloud.ClassUnauthorised,
	"MissingAuthenticationToken":                        cloud.ClassUnauthorised,
	"ExpiredToken":                                      cloud.ClassUnauthorised,
	"ExpiredTokenException":                             cloud.ClassUnauthorised,
	"RequestExpired":                                    cloud.ClassUnauthorised,

	"IdempotentParameterMismatch": cloud.ClassTokenReused,
	// The token's instance came and went: an earlier call took effect, and adopting it finds a terminated instance.
	"IdempotentInstanceTerminated": cloud.ClassTokenReused,

	// These come with HTTP 400.
	"RequestTimeout":          cloud.ClassTransient,
	"RequestTimeoutException": cloud.ClassTransient,
}

// failed makes a *cloud.Error of what the SDK returned for an operation. EC2's errors reach us as smithy.GenericAPIError
// whose fault is always "unknown", so code and HTTP status decide, never the fault.
func failed(operation string, err error) error {
	out := &cloud.Error{Class: cloud.ClassTransient, Operation: operation, Err: scrubbedError{err}}
	var api smithy.APIError
	if errors.As(err, &api) {
		out.Code = api.ErrorCode()
		out.Message = scrub(api.ErrorMessage())
		out.Class = classOf(out.Code, statusOf(err))
	}
	return out
}

// invalid is a request that we refuse before it is sent.
func invalid(operation string, err error) error {
	return &cloud.Error{Class: cloud.ClassInvalid, Operation: operation, Message: scrub(err.Error()), Err: scrubbedError{err}}
}

func classOf(code string, status int) cloud.Class {
	if class, ok := classes[code]; ok {
		return class
	}
	if _, ok := retry.DefaultThrottleErrorCodes[code]; ok || status == http.StatusTooManyRequests {
		return cloud.ClassThrottled
	}
	if status >= 400 && status < 500 {
		return cloud.ClassInvalid
	}
	return cloud.ClassTransient
}

// statusOf returns the HTTP status that came with an error, 0 where no answer came.
func statusOf(err error) int {
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

func hasCode(err error, code string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && api.ErrorCode() == code
}

// scrubbedError says an error without what messages must not carry, and keeps it for errors.Is and errors.As.
type scrubbedError struct{ err error }

func (e scrubbedError) Error() string { return scrub(e.err.Error()) }
func (e scrubbedError) Unwrap() error { return e.err }

var (
	// words finds the runs of which an account id is a whole one: twelve digits inside an instance id are not an account.
	words     = regexp.MustCompile(`[0-9A-Za-z]+`)
	accountID = regexp.MustCompile(`^[0-9]{12}$`)
	// encoded is the reason of a refusal, to be read with sts:DecodeAuthorizationMessage: a kilobyte that names the account.
	encoded = regexp.MustCompile(`(?i)(encoded authori[sz]ation failure message:?)\s*[A-Za-z0-9_-]+`)
)

// scrub takes account ids and encoded authorization messages out of the cloud's words: they end in conditions, events and
// pods' status, which more people read than may know them.
func scrub(message string) string {
	message = encoded.ReplaceAllString(message, "$1 <removed>")
	return words.ReplaceAllStringFunc(message, func(word string) string {
		return accountID.ReplaceAllString(word, "<account>")
	})
}
