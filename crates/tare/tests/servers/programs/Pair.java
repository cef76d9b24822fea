import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;

/** Answers "hello"; with a second argument it computes that many steps before. */
public final class Pair {
    static volatile long kept;

    public static void main(String[] arguments) throws Exception {
        int steps = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 0;
        byte[] body = "hello\n".getBytes();
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), 0);
        server.createContext("/", exchange -> {
            long value = System.nanoTime() | 1;
            for (int step = 0; step < steps; step++) {
                value ^= value << 13;
                value ^= value >>> 7;
                value ^= value << 17;
            }
            kept = value;
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
