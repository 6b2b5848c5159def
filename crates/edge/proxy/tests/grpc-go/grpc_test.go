// Package grpc tests gRPC calls by grpc-go through an edge. Run by `make test-grpc`.
package grpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// rawCodec sends byte slices as messages, so that the tests need no generated code.
type rawCodec struct{}

func (rawCodec) Name() string { return "raw" }

func (rawCodec) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (rawCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = bytes.Clone(data)
	return nil
}

// cancelled gets a value when the context of a call of Talk ends.
var cancelled = make(chan struct{}, 1)

func unary(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var message []byte
	if err := decode(&message); err != nil {
		return nil, err
	}
	fields, _ := metadata.FromIncomingContext(ctx)
	grpc.SetHeader(ctx, metadata.Pairs("x-head", fields.Get("x-asked")[0]))
	grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "end"))
	if string(message) == "fail" {
		return nil, status.Error(codes.FailedPrecondition, "as asked: é")
	}
	return &message, nil
}

// talk echoes each message before it reads the next.
func talk(_ any, stream grpc.ServerStream) error {
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err == io.EOF {
			return nil
		} else if err != nil {
			<-stream.Context().Done()
			cancelled <- struct{}{}
			return err
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
}

// watch answers one message with many.
func watch(_ any, stream grpc.ServerStream) error {
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	for n := 0; n < 1000; n++ {
		event := fmt.Appendf(nil, "%s %d", message, n)
		if err := stream.SendMsg(&event); err != nil {
			return err
		}
	}
	return nil
}

// collect answers many messages with the number of their bytes.
func collect(_ any, stream grpc.ServerStream) error {
	total := 0
	for {
		var message []byte
		if err := stream.RecvMsg(&message); err == io.EOF {
			sum := fmt.Appendf(nil, "%d", total)
			return stream.SendMsg(&sum)
		} else if err != nil {
			return err
		}
		total += len(message)
	}
}

var service = grpc.ServiceDesc{
	ServiceName: "echo.Echo",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: unary}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Talk", Handler: talk, ServerStreams: true, ClientStreams: true},
		{StreamName: "Watch", Handler: watch, ServerStreams: true},
		{StreamName: "Collect", Handler: collect, ClientStreams: true},
	},
}

// connect starts a server and an edge, and returns a client of the edge.
func connect(t *testing.T) *grpc.ClientConn {
	t.Helper()
	program := os.Getenv("EDGEWARD")
	if program == "" {
		t.Skip("EDGEWARD is not set: run `make test-grpc`")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}))
	server.RegisterService(&service, struct{}{})
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	config := filepath.Join(t.TempDir(), "edge.toml")
	text := fmt.Sprintf("[origin]\nurl = \"http://%s\"\nprotocol = \"http2\"\n", listener.Addr())
	check(t, os.WriteFile(config, []byte(text), 0o600))
	edge := exec.Command(program, "serve", "--json", "--config", config, "--listen", "127.0.0.1:0", "--hot", "64MiB")
	output, err := edge.StdoutPipe()
	check(t, err)
	check(t, edge.Start())
	t.Cleanup(func() { edge.Process.Kill(); edge.Wait() })
	var started struct{ Listening []string }
	check(t, json.NewDecoder(output).Decode(&started))
	address, err := url.Parse(started.Listening[0])
	check(t, err)
	client, err := grpc.NewClient("passthrough:///"+address.Host,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	check(t, err)
	t.Cleanup(func() { client.Close() })
	return client
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "x-asked", "yes")
}

func TestUnaryCallsKeepMessagesMetadataAndErrors(t *testing.T) {
	client, ctx := connect(t), timeout(t)
	for n := 0; n < 200; n++ {
		sent := bytes.Repeat([]byte{byte(n)}, n*500)
		var received []byte
		var head, tail metadata.MD
		check(t, client.Invoke(ctx, "/echo.Echo/Unary", &sent, &received, grpc.Header(&head), grpc.Trailer(&tail)))
		if !bytes.Equal(sent, received) || head.Get("x-head")[0] != "yes" || tail.Get("x-tail")[0] != "end" {
			t.Fatalf("%d: %d of %d bytes, %v, %v", n, len(received), len(sent), head, tail)
		}
	}
	sent, received := []byte("fail"), []byte(nil)
	err := client.Invoke(ctx, "/echo.Echo/Unary", &sent, &received)
	if got := status.Convert(err); got.Code() != codes.FailedPrecondition || got.Message() != "as asked: é" {
		t.Fatal(err)
	}
	err = client.Invoke(ctx, "/echo.Echo/Absent", &sent, &received)
	if status.Code(err) != codes.Unimplemented {
		t.Fatal(err)
	}
}

func TestMessagesStreamInBothDirections(t *testing.T) {
	client, ctx := connect(t), timeout(t)
	stream, err := client.NewStream(ctx, &service.Streams[0], "/echo.Echo/Talk")
	check(t, err)
	for n := 0; n < 500; n++ {
		sent, received := fmt.Appendf(nil, "message %d", n), []byte(nil)
		check(t, stream.SendMsg(&sent))
		check(t, stream.RecvMsg(&received))
		if !bytes.Equal(sent, received) {
			t.Fatalf("%q for %q", received, sent)
		}
	}
	check(t, stream.CloseSend())
	if err := stream.RecvMsg(new([]byte)); err != io.EOF {
		t.Fatal(err)
	}
}

func TestAServerStreamsAndAClientStreams(t *testing.T) {
	client, ctx := connect(t), timeout(t)
	stream, err := client.NewStream(ctx, &service.Streams[1], "/echo.Echo/Watch")
	check(t, err)
	sent := []byte("event")
	check(t, stream.SendMsg(&sent))
	check(t, stream.CloseSend())
	for n := 0; n < 1000; n++ {
		var received []byte
		check(t, stream.RecvMsg(&received))
		if string(received) != fmt.Sprintf("event %d", n) {
			t.Fatalf("%q", received)
		}
	}
	stream, err = client.NewStream(ctx, &service.Streams[2], "/echo.Echo/Collect")
	check(t, err)
	part := make([]byte, 100_000)
	for n := 0; n < 200; n++ {
		check(t, stream.SendMsg(&part))
	}
	check(t, stream.CloseSend())
	var received []byte
	check(t, stream.RecvMsg(&received))
	if string(received) != "20000000" {
		t.Fatalf("%q", received)
	}
}

func TestACancelledCallEndsAtTheServer(t *testing.T) {
	client := connect(t)
	ctx, cancel := context.WithCancel(timeout(t))
	stream, err := client.NewStream(ctx, &service.Streams[0], "/echo.Echo/Talk")
	check(t, err)
	sent, received := []byte("x"), []byte(nil)
	check(t, stream.SendMsg(&sent))
	check(t, stream.RecvMsg(&received))
	cancel()
	select {
	case <-cancelled:
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not learn of the end")
	}
	if err := stream.RecvMsg(&received); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
}
