package provider

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/vmihailenco/msgpack/v5"
)

// Server makes the provider as Terraform speaks to it.
func Server(version string) func() tfprotov6.ProviderServer {
	return func() tfprotov6.ProviderServer {
		return &server{providerserver.NewProtocol6(New(version)())()}
	}
}

// server answers a refresh in JSON instead of MessagePack; both are in the protocol.
//
// Terraform compares the states before and after a refresh as decoded values, and decodes the one before from the state
// file, which is JSON. A number from MessagePack has another precision than the same number from JSON, so that with
// Terraform 1.11 a state with any number in it always counts as changed: "plan -refresh-only -detailed-exitcode" exits 2
// for ever, and says that there is nothing to do (seen with 1.11.4; newer versions compare what is encoded:
// hashicorp/terraform, internal/states/state_equal.go).
//
// List resources and actions are optional interfaces of the protocol: whoever adds the first of them embeds
// tfprotov6.ProviderServerWithListResource or ProviderServerWithActions here, or Terraform will not see them.
type server struct {
	tfprotov6.ProviderServer
}

// ReadResource refreshes one resource.
func (s *server) ReadResource(ctx context.Context, req *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	resp, err := s.ProviderServer.ReadResource(ctx, req)
	if err != nil || resp.NewState == nil || len(resp.NewState.MsgPack) == 0 {
		return resp, err
	}
	var state any
	if err := msgpack.Unmarshal(resp.NewState.MsgPack, &state); err != nil {
		return nil, fmt.Errorf("refresh of %s: %w", req.TypeName, err)
	}
	text, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("refresh of %s: %w", req.TypeName, err)
	}
	resp.NewState = &tfprotov6.DynamicValue{JSON: text}
	return resp, nil
}
