import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Lets clients work for a while: a time that is not counted, then one that is. Prints one line of JSON: how many exchanges
 * were acknowledged in all, how many within the time that counts, and the latencies of these in seconds, whenever they
 * began: without those that began before it, long ones would be missing.
 */
final class Load {
    /** One exchange at a time: returns when it is acknowledged. */
    interface Client {
        void once() throws Exception;
    }

    /** Many at a time: {@code done.run()} is called when this one is acknowledged. */
    interface Sender {
        void send(Runnable done) throws Exception;
    }

    private final long begin;
    private final long end;
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private long acknowledged;
    private long[] latencies = new long[1 << 16];
    private int counted;

    Load(double warmUp, double seconds) {
        begin = System.nanoTime() + (long) (warmUp * 1e9);
        end = begin + (long) (seconds * 1e9);
    }

    void failed(Throwable error) {
        failure.compareAndSet(null, error);
    }

    /** Every client on a thread of its own, until the time is over. */
    void each(List<? extends Client> clients) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (Client client : clients) {
            Thread thread = new Thread(() -> repeat(client));
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        report();
    }

    private void repeat(Client client) {
        try {
            long now = System.nanoTime();
            while (now < end && failure.get() == null) {
                client.once();
                long before = now;
                now = System.nanoTime();
                count(before, now);
            }
        } catch (Throwable error) {
            failed(error);
        }
    }

    /** Up to {@code window} unacknowledged at any time. Waits for the last acknowledgement. */
    void pipelined(Sender sender, int window) throws Exception {
        Semaphore free = new Semaphore(window);
        long now = System.nanoTime();
        while (now < end && failure.get() == null) {
            free.acquire();
            long began = System.nanoTime();
            now = began;
            sender.send(() -> {
                count(began, System.nanoTime());
                free.release();
            });
        }
        if (failure.get() == null) {
            free.acquire(window);
        }
        report();
    }

    private synchronized void count(long began, long ended) {
        acknowledged++;
        if (ended >= begin && ended <= end) {
            if (counted == latencies.length) {
                latencies = Arrays.copyOf(latencies, 2 * counted);
            }
            latencies[counted++] = ended - began;
        }
    }

    private synchronized void report() throws Exception {
        if (failure.get() != null) {
            throw new Exception("the load failed", failure.get());
        }
        Arrays.sort(latencies, 0, counted);
        System.out.printf(
            java.util.Locale.ROOT,
            "{\"acknowledged\": %d, \"counted\": %d, \"seconds\": %.9f, \"p50\": %s, \"p99\": %s}%n",
            acknowledged, counted, (end - begin) / 1e9, quantile(0.5), quantile(0.99));
    }

    /** Fails unless there are as many messages as were acknowledged. */
    void verify(long held) throws Exception {
        verify(held, 1);
    }

    /** The same where each exchange is of that many messages. */
    synchronized void verify(long held, int messages) throws Exception {
        if (held != acknowledged * messages) {
            throw new Exception(acknowledged + " exchanges of " + messages + " messages were acknowledged, there are " + held);
        }
    }

    private String quantile(double share) {
        return counted == 0 ? "null" : Double.toString(latencies[(int) (share * (counted - 1))] / 1e9);
    }
}
