package cloud

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrNotFound: the cloud does not know the instance.
var ErrNotFound = errors.New("instance not found")

// Class is a kind of error. It decides what is tried next.
type Class string

// Classes of error.
const (
	// ClassCapacity: the cloud has none of this type in this zone, bought this way.
	ClassCapacity Class = "NoCapacity"
	// ClassQuota: the account may not have more of this kind anywhere in the region.
	ClassQuota Class = "QuotaExceeded"
	// ClassReservation: the reservation is full, over or not begun.
	ClassReservation Class = "ReservationUnavailable"
	// ClassUnauthorised: we may not do this.
	ClassUnauthorised Class = "Unauthorised"
	// ClassInvalid: the request is wrong, and would be wrong again.
	ClassInvalid Class = "Invalid"
	// ClassThrottled: too many calls.
	ClassThrottled Class = "Throttled"
	// ClassTransient: the outcome is unknown or the cloud is ill. The same call may be made again with the same token.
	ClassTransient Class = "Transient"
	// ClassTokenReused: the token was used before with another request, so an earlier call took effect: adopt it.
	ClassTokenReused Class = "TokenReused"
)

// Error is a failed call to the cloud.
type Error struct {
	Class Class
	// Operation is the call that failed, e.g. RunInstances.
	Operation string
	// Code is the cloud's own, e.g. InsufficientInstanceCapacity.
	Code string
	// Message is the cloud's own words.
	Message string
	// Err is the error that came with it.
	Err error
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%s: %s: %v", e.Operation, e.Class, e.Err)
	}
	return fmt.Sprintf("%s: %s: %s: %s", e.Operation, e.Class, e.Code, e.Message)
}

// Unwrap returns the error underneath.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf returns the class of an error, ClassTransient for one that is not an *Error.
func ClassOf(err error) Class {
	var cloudErr *Error
	if errors.As(err, &cloudErr) {
		return cloudErr.Class
	}
	return ClassTransient
}

// maxWords bounds what a cloud's words may take of a status.
const maxWords = 400

// accountPattern finds what tells whose account it is: an AWS account id, and the encoded message of a refused right.
var accountPattern = regexp.MustCompile(`\b[0-9]{12}\b|Encoded authorization failure message: \S+`)

// Words are what a failed call says to people: its code and the cloud's own words, without the account, in one line.
func Words(err error) string {
	words := err.Error()
	var cloudErr *Error
	if errors.As(err, &cloudErr) && cloudErr.Code != "" {
		words = cloudErr.Code
		if cloudErr.Message != "" {
			words += ": " + cloudErr.Message
		}
	}
	words = strings.Join(strings.Fields(accountPattern.ReplaceAllString(words, "(left out)")), " ")
	if cut := []rune(words); len(cut) > maxWords {
		words = string(cut[:maxWords]) + "..."
	}
	return words
}
