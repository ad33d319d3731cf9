import com.fasterxml.jackson.annotation.JsonAutoDetect.Visibility;
import com.fasterxml.jackson.annotation.PropertyAccessor;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.exceptions.NotAuthorizedException;
import org.apache.iceberg.exceptions.ValidationException;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.RESTUtil;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.OAuthTokenResponse;

/**
 * Iceberg's REST catalogue over HTTP. What a request does, Apache Iceberg's own handlers decide, on its catalogues in
 * memory; here is only which handler it goes to. Each warehouse, a folder's address, has a catalogue of its own. The
 * argument is the credential that clients must log in with. The port is the first line of standard output; the end of
 * standard input ends the server.
 */
public final class Catalogue {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String TOKEN = "the-token";

    private final String credential;
    private final List<String> warehouses = new CopyOnWriteArrayList<>();
    private final List<InMemoryCatalog> catalogs = new CopyOnWriteArrayList<>();

    private Catalogue(String credential) {
        this.credential = credential;
    }

    public static void main(String[] arguments) throws IOException {
        JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
        JSON.setVisibility(PropertyAccessor.FIELD, Visibility.ANY);
        JSON.setPropertyNamingStrategy(PropertyNamingStrategies.KEBAB_CASE);
        RESTSerializers.registerAll(JSON);
        Catalogue catalogue = new Catalogue(arguments[0]);
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", catalogue::handle);
        server.start();
        System.out.println(server.getAddress().getPort());
        while (System.in.read() >= 0) {}
        System.exit(0);
    }

    private void handle(HttpExchange exchange) throws IOException {
        int code;
        Object answer;
        try {
            String[] path = exchange.getRequestURI().getRawPath().substring("/v1/".length()).split("/");
            answer = answer(exchange, path);
            code = 200;
        } catch (RuntimeException error) {
            code = codeOf(error);
            answer = ErrorResponse.builder()
                    .responseCode(code)
                    .withType(error.getClass().getSimpleName())
                    .withMessage(error.getMessage())
                    .build();
        }
        byte[] body = JSON.writeValueAsBytes(answer);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(code, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    private Object answer(HttpExchange exchange, String[] path) throws IOException {
        String text = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
        if (path[0].equals("oauth")) {
            return token(RESTUtil.decodeFormData(text));
        }
        if (!("Bearer " + TOKEN).equals(exchange.getRequestHeaders().getFirst("Authorization"))) {
            throw new NotAuthorizedException("Log in first");
        }
        if (path[0].equals("config")) {
            return config(RESTUtil.decodeFormData(exchange.getRequestURI().getRawQuery()).get("warehouse"));
        }
        InMemoryCatalog catalog = catalogs.get(Integer.parseInt(path[0]));
        boolean isPost = exchange.getRequestMethod().equals("POST");
        if (path.length == 2) {
            return CatalogHandlers.createNamespace(catalog, JSON.readValue(text, CreateNamespaceRequest.class));
        }
        Namespace namespace = RESTUtil.decodeNamespaceAsPathSegment(path[2], "%1F");
        if (path.length == 3) {
            return CatalogHandlers.loadNamespace(catalog, namespace);
        }
        if (path.length == 4) {
            CreateTableRequest wanted = JSON.readValue(text, CreateTableRequest.class);
            return wanted.stageCreate()
                    ? CatalogHandlers.stageTableCreate(catalog, namespace, wanted)
                    : CatalogHandlers.createTable(catalog, namespace, wanted);
        }
        TableIdentifier table = TableIdentifier.of(namespace, RESTUtil.decodePathSegment(path[4]));
        return isPost
                ? CatalogHandlers.updateTable(catalog, table, JSON.readValue(text, UpdateTableRequest.class))
                : CatalogHandlers.loadTable(catalog, table, SnapshotMode.ALL);
    }

    /** The catalogue of a warehouse, which comes into being with the first question for it. */
    private synchronized Object config(String warehouse) {
        if (!warehouses.contains(warehouse)) {
            InMemoryCatalog catalog = new InMemoryCatalog();
            catalog.initialize("tests", Map.of("warehouse", warehouse));
            catalogs.add(catalog);
            warehouses.add(warehouse);
        }
        return ConfigResponse.builder()
                .withOverride("prefix", String.valueOf(warehouses.indexOf(warehouse)))
                .build();
    }

    private Object token(Map<String, String> form) {
        if (!credential.equals(form.get("client_id") + ":" + form.get("client_secret"))) {
            throw new NotAuthorizedException("This is not the credential");
        }
        return OAuthTokenResponse.builder().withToken(TOKEN).withTokenType("bearer").setExpirationInSeconds(3600).build();
    }

    private static int codeOf(RuntimeException error) {
        if (error instanceof NoSuchTableException || error instanceof NoSuchNamespaceException) {
            return 404;
        }
        if (error instanceof AlreadyExistsException || error instanceof CommitFailedException) {
            return 409;
        }
        if (error instanceof NotAuthorizedException) {
            return 401;
        }
        return error instanceof IllegalArgumentException || error instanceof ValidationException ? 400 : 500;
    }
}
