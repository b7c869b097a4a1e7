package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/gpufleet/terraform-provider-gpufleet/test/region"
)

// admin calls the region's admin port. A body is sent as JSON.
func (s *soak) admin(ctx context.Context, method, path string, body any) (answer []byte, err error) {
	var sent bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&sent).Encode(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, s.Stack.AdminURL+path, &sent)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer, nil
}

// inState are the machines of the books in a state, oldest first.
func (s *soak) inState(ctx context.Context, state string) ([]region.Instance, error) {
	books, err := s.books(ctx)
	if err != nil {
		return nil, err
	}
	var out []region.Instance
	for _, each := range books {
		if each.State == state {
			out = append(out, each)
		}
	}
	return out, nil
}
