// An origin that routes by the contexts of the JDK's server, which compare the decoded path.
import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;

public class Contexts {
    public static void main(String[] arguments) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        String[][] pages = {{"/", "OTHER"}, {"/admin/", "ADMIN"}, {"/account/", "PRIVATE"}};
        for (String[] page : pages) {
            server.createContext(page[0], exchange -> {
                byte[] text = page[1].getBytes();
                exchange.sendResponseHeaders(200, text.length);
                exchange.getResponseBody().write(text);
                exchange.close();
            });
        }
        server.start();
        System.out.println(server.getAddress().getPort());
    }
}
