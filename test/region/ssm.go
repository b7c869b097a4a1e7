package region

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

const ssmGetParameter = "AmazonSSM.GetParameter"

// serveSSM answers the JSON 1.1 protocol of SSM, of which the region has GetParameter.
func (r *Region) serveSSM(ctx context.Context, w http.ResponseWriter, target string, body []byte) {
	if target != ssmGetParameter {
		r.calls.count(target, "UnknownOperationException")
		writeSSMError(w, refuse("UnknownOperationException", "this region does not serve %s", target))
		return
	}
	value, failure := getParameter(body)
	code := codeOK
	if failure != nil {
		code = failure.Code
	}
	r.calls.count("GetParameter", code)
	r.logf("ssm GetParameter %s", code)
	r.faults.hold(ctx, "GetParameter")
	if failure != nil {
		writeSSMError(w, failure)
		return
	}
	writeSSM(w, http.StatusOK, map[string]any{"Parameter": value})
}

type parameter struct {
	ARN              string
	DataType         string
	LastModifiedDate float64
	Name             string
	Type             string
	Value            string
	Version          int
}

func getParameter(body []byte) (*parameter, *apiError) {
	var in struct{ Name string }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, refuse("SerializationException", "read the request: %v", err)
	}
	if in.Name != imageParameter {
		return nil, refuse("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	published := time.Date(2026, time.September, 17, 0, 0, 0, 0, time.UTC)
	return &parameter{
		ARN:              "arn:aws:ssm:" + regionName + "::parameter" + imageParameter,
		DataType:         "aws:ec2:image",
		LastModifiedDate: float64(published.Unix()),
		Name:             in.Name,
		Type:             "String",
		Value:            imageID,
		Version:          1,
	}, nil
}

func writeSSMError(w http.ResponseWriter, e *apiError) {
	writeSSM(w, e.Status, map[string]string{"__type": e.Code, "message": e.Message})
}

func writeSSM(w http.ResponseWriter, status int, body any) {
	out, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("X-Amzn-Requestid", hexID(16))
	w.WriteHeader(status)
	// A caller that has gone away is no error of the region's.
	_, _ = w.Write(out)
}
