package region

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	xmlNamespace = "http://ec2.amazonaws.com/doc/2016-11-15/"
	apiVersion   = "2016-11-15"
	maxBody      = 1 << 20
)

// apiError is an error as AWS answers it.
type apiError struct {
	Status  int
	Code    string
	Message string
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

// refuse is a client error: HTTP 400, which most codes of EC2 are.
func refuse(code, format string, args ...any) *apiError {
	return &apiError{Status: http.StatusBadRequest, Code: code, Message: fmt.Sprintf(format, args...)}
}

// reply is the body of an answer; header puts the request's id first, as EC2 does.
type reply interface{ stamp(requestID string) }

type header struct {
	RequestID string `xml:"requestId"`
}

func (h *header) stamp(requestID string) { h.RequestID = requestID }

// operation answers one call of the EC2 Query API.
type operation func(*Region, query) (reply, *apiError)

func ec2Operations() map[string]operation {
	return map[string]operation{
		"RunInstances":                  (*Region).runInstances,
		"TerminateInstances":            (*Region).terminateInstances,
		"DescribeInstances":             (*Region).describeInstances,
		"DescribeSubnets":               (*Region).describeSubnets,
		"DescribeSecurityGroups":        (*Region).describeSecurityGroups,
		"DescribeImages":                (*Region).describeImages,
		"DescribeInstanceTypes":         (*Region).describeInstanceTypes,
		"DescribeInstanceTypeOfferings": (*Region).describeInstanceTypeOfferings,
	}
}

// serveAWS answers every service at one address, as AWS_ENDPOINT_URL wants it: JSON services name their operation in a
// header, EC2 in the form.
func (r *Region) serveAWS(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		writeEC2Error(w, refuse("InvalidRequest", "read the request: %v", err))
		return
	}
	if target := req.Header.Get("X-Amz-Target"); target != "" {
		r.serveSSM(req.Context(), w, target, body)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		writeEC2Error(w, refuse("MalformedQueryString", "the query string is malformed: %v", err))
		return
	}
	r.serveEC2(req.Context(), w, query{form})
}

func (r *Region) serveEC2(ctx context.Context, w http.ResponseWriter, q query) {
	action := q.get("Action")
	answer, failure := r.call(action, q)
	code := codeOK
	if failure != nil {
		code = failure.Code
	}
	// Counted before it is held, so that whoever holds an answer can see that the effect took place.
	r.calls.count(action, code)
	r.logf("ec2 %s %s", action, code)
	r.faults.hold(ctx, action)
	if failure != nil {
		writeEC2Error(w, failure)
		return
	}
	writeEC2(w, action, answer)
}

func (r *Region) call(action string, q query) (reply, *apiError) {
	op, ok := ec2Operations()[action]
	if !ok {
		return nil, refuse("InvalidAction", "The action %s is not valid for this web service.", action)
	}
	if version := q.get("Version"); version != apiVersion {
		return nil, refuse("NoSuchVersion", "The API version %q is not served: this region serves %s.", version, apiVersion)
	}
	return op(r, q)
}

func writeEC2(w http.ResponseWriter, action string, answer reply) {
	answer.stamp(hexID(16))
	writeXML(w, http.StatusOK, action+"Response", xmlNamespace, answer)
}

// writeEC2Error answers as the SDK's deserializer of EC2 errors reads it: Response/Errors/Error and RequestID.
func writeEC2Error(w http.ResponseWriter, e *apiError) {
	type entry struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	body := struct {
		Errors    []entry `xml:"Errors>Error"`
		RequestID string  `xml:"RequestID"`
	}{[]entry{{e.Code, e.Message}}, hexID(16)}
	writeXML(w, e.Status, "Response", "", body)
}

func writeXML(w http.ResponseWriter, status int, root, namespace string, body any) {
	start := xml.StartElement{Name: xml.Name{Space: namespace, Local: root}}
	var out strings.Builder
	out.WriteString(xml.Header)
	if err := xml.NewEncoder(&out).EncodeElement(body, start); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	w.WriteHeader(status)
	// A caller that has gone away is no error of the region's.
	_, _ = io.WriteString(w, out.String())
}

// query is the form of one call, where lists are flattened: Filter.1.Value.2.
type query struct{ url.Values }

func (q query) get(name string) string { return q.Get(name) }

// list reads name.1, name.2 and so on.
func (q query) list(name string) []string {
	var out []string
	for i := 1; q.Has(indexed(name, i)); i++ {
		out = append(out, q.get(indexed(name, i)))
	}
	return out
}

func indexed(name string, i int) string { return name + "." + strconv.Itoa(i) }

// filter is one Filter.N of a Describe call.
type filter struct {
	Name   string
	Values []string
}

func (q query) filters() []filter {
	var out []filter
	for i := 1; q.Has(indexed("Filter", i) + ".Name"); i++ {
		prefix := indexed("Filter", i)
		out = append(out, filter{Name: q.get(prefix + ".Name"), Values: q.list(prefix + ".Value")})
	}
	return out
}

// attributes are the values of one thing that a filter may ask for; false: there is no such filter.
type attributes func(name string) (values []string, known bool)

// matches says whether a thing passes every filter. Values may hold the wildcards * and ?.
func matches(filters []filter, of attributes) (bool, *apiError) {
	for _, f := range filters {
		have, known := of(f.Name)
		if !known {
			return false, refuse("InvalidParameterValue", "The filter '%s' is invalid", f.Name)
		}
		hit := slices.ContainsFunc(f.Values, func(want string) bool {
			return slices.ContainsFunc(have, func(value string) bool { return wildcard(want, value) })
		})
		if !hit {
			return false, nil
		}
	}
	return true, nil
}

// wildcard matches * and ? as EC2's filters do.
func wildcard(pattern, value string) bool {
	switch {
	case pattern == "":
		return value == ""
	case pattern[0] == '*':
		return wildcard(pattern[1:], value) || value != "" && wildcard(pattern, value[1:])
	case value == "":
		return false
	default:
		return (pattern[0] == '?' || pattern[0] == value[0]) && wildcard(pattern[1:], value[1:])
	}
}

// page cuts one page out of items. seq numbers an item, from 0, for as long as the region lives: a page goes on where the
// one before ended even if items have gone since.
func page[T any](q query, items []T, limit int, seq func(i int, item T) int) ([]T, string, *apiError) {
	from, err := pageStart(q.get("NextToken"))
	if err != nil {
		return nil, "", refuse("InvalidNextToken", "The token '%s' is invalid", q.get("NextToken"))
	}
	size := limit
	if text := q.get("MaxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 5 || n > limit {
			return nil, "", refuse("InvalidParameterValue", "Value ( %s ) for parameter maxResults is invalid. Expecting a value between 5 and %d.", text, limit)
		}
		size = n
	}
	var out []T
	for i, item := range items {
		if seq(i, item) < from {
			continue
		}
		if len(out) == size {
			return out, base64.URLEncoding.EncodeToString([]byte("seq:" + strconv.Itoa(seq(i, item)))), nil
		}
		out = append(out, item)
	}
	return out, "", nil
}

func pageStart(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return 0, err
	}
	number, found := strings.CutPrefix(string(raw), "seq:")
	if !found {
		return 0, errors.New("not a token of this region")
	}
	return strconv.Atoi(number)
}

// byIndex numbers what never changes: a list of the region's own data.
func byIndex[T any](i int, _ T) int { return i }

// hexID returns n random bytes in hexadecimal.
func hexID(n int) string {
	b := make([]byte, n)
	// crypto/rand.Read never returns an error (Go 1.24 release notes).
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
