// Package bench measures a server through the public client: produce, consume and both at once, at an offered rate
// or as fast as it goes, and the same against a floor (package floor), so that every figure can be read as a ratio.
//
// How it measures:
//   - Open loop: with a rate, request k of a producer is due at a time fixed in advance, and its latency counts from
//     that time, whatever delayed it. A server that stalls is charged for every request that came due meanwhile.
//   - Closed loop: without a rate, each worker sends its next request when the last was answered.
//   - Latencies go to HDR histograms, one per worker, merged at the end; a second one per worker is emptied by the
//     sampler and makes the series over time.
//   - What started before the warm-up ended is not counted.
//   - Servers of its own run as separate processes, the floor too, so that memory, CPU and bytes written can be read
//     per process and the client's share is the same for both.
package bench
