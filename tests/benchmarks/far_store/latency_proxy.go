// Latency_proxy makes a near S3 server answer like a far one, and remembers each request.
//
//	latency_proxy -to 127.0.0.1:9000
//
// It prints two addresses on its first line, its own and that of its control server, and ends when its standard input is closed.
// The control server takes
//
//	/latency?GET=20&PUT=30&LIST=20&DELETE=20&COPY=30&sigma=0.3&tail=0.02&tail_ms=100
//	/forget
//	/requests
//
// A request waits before it is handed on: the milliseconds of its kind, times a lognormal factor of mean 1 and the given sigma, and
// tail_ms more in a share `tail` of all cases. HEAD and POST wait as GET and PUT do. /requests answers with a line of JSON for each
// request since the last /forget.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"
)

// record describes one request; times are seconds since 1970, sizes bytes of bodies.
type record struct {
	Begun    float64 `json:"begun_s"`
	Ended    float64 `json:"ended_s"`
	Kind     string  `json:"kind"`
	Key      string  `json:"key"`
	Status   int     `json:"status"`
	Sent     int64   `json:"sent_bytes"`
	Answered int64   `json:"answered_bytes"`
	Agent    string  `json:"agent"`
}

// proxy delays and records the requests to one server.
type proxy struct {
	next http.Handler

	mutex   sync.Mutex
	latency map[string]float64
	records []record
}

func (p *proxy) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	found := record{Begun: seconds(), Kind: kindOf(request), Key: keyOf(request), Agent: request.UserAgent()}
	time.Sleep(p.delay(found.Kind))
	body, counted := &countedBody{ReadCloser: request.Body}, &countedAnswer{ResponseWriter: answer}
	if request.ContentLength != 0 {
		request.Body = body
	}
	// It goes on to a server of this host, which need not be asked whether it wants the body.
	request.Header.Del("Expect")
	p.next.ServeHTTP(counted, request)
	found.Ended, found.Status, found.Sent, found.Answered = seconds(), counted.status, body.count, counted.count
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.records = append(p.records, found)
}

func (p *proxy) delay(kind string) time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch kind {
	case "HEAD":
		kind = "GET"
	case "POST":
		kind = "PUT"
	}
	ms := p.latency[kind]
	if sigma := p.latency["sigma"]; sigma > 0 {
		ms *= math.Exp(sigma*rand.NormFloat64() - sigma*sigma/2)
	}
	if rand.Float64() < p.latency["tail"] {
		ms += p.latency["tail_ms"]
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func (p *proxy) control(answer http.ResponseWriter, request *http.Request) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch request.URL.Path {
	case "/latency":
		for name, values := range request.URL.Query() {
			value, err := strconv.ParseFloat(values[0], 64)
			if err != nil {
				http.Error(answer, err.Error(), http.StatusBadRequest)
				return
			}
			p.latency[name] = value
		}
	case "/forget":
		p.records = nil
	case "/requests":
		lines := bufio.NewWriter(answer)
		defer lines.Flush()
		for _, each := range p.records {
			if err := json.NewEncoder(lines).Encode(each); err != nil {
				log.Print(err)
			}
		}
	default:
		http.NotFound(answer, request)
	}
}

// kindOf names a request as a store's price list does.
func kindOf(request *http.Request) string {
	asked := request.URL.Query()
	switch {
	case request.Method == http.MethodGet && (asked.Has("list-type") || asked.Has("prefix")):
		return "LIST"
	case request.Method == http.MethodPut && request.Header.Get("X-Amz-Copy-Source") != "":
		return "COPY"
	case request.Method == http.MethodPost && asked.Has("delete"):
		return "DELETE"
	}
	return request.Method
}

// keyOf is the bucket and key of a request, or the bucket and prefix of a listing.
func keyOf(request *http.Request) string {
	key := request.URL.Path
	if prefix := request.URL.Query().Get("prefix"); prefix != "" {
		key += "/" + prefix
	}
	return key
}

type countedBody struct {
	io.ReadCloser
	count int64
}

func (b *countedBody) Read(into []byte) (int, error) {
	count, err := b.ReadCloser.Read(into)
	b.count += int64(count)
	return count, err
}

type countedAnswer struct {
	http.ResponseWriter
	status int
	count  int64
}

func (a *countedAnswer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *countedAnswer) Write(data []byte) (int, error) {
	count, err := a.ResponseWriter.Write(data)
	a.count += int64(count)
	return count, err
}

func seconds() float64 {
	return float64(time.Now().UnixNano()) / 1e9
}

func main() {
	to := flag.String("to", "", "host and port of the server")
	flag.Parse()
	server := &url.URL{Scheme: "http", Host: *to}
	p := &proxy{latency: map[string]float64{}}
	p.next = &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(server)
			// The signature of a request covers the host that it was sent to.
			request.Out.Host = request.In.Host
			request.Out.URL.RawQuery = request.In.URL.RawQuery
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
		// A client that goes away in the middle of a request is nobody's fault.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	own, control := listen(), listen()
	fmt.Println(own.Addr(), control.Addr())
	go func() { log.Fatal(http.Serve(control, http.HandlerFunc(p.control))) }()
	go func() { log.Fatal(http.Serve(own, p)) }()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		log.Fatal(err)
	}
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}
