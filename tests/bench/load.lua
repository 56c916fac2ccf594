-- For wrk: posts the body of the file that BODY names, and tells what came of it as JSON in the last line.
local file = assert(io.open(os.getenv("BODY"), "rb"))
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = file:read("*a")
file:close()

function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '{"requests": %d, "rate": %f, "p50": %f, "p99": %f, "bad": %d}\n',
    summary.requests, summary.requests / (summary.duration / 1e6),
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
    e.connect + e.read + e.write + e.status + e.timeout))
end
