import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs the main methods of Kafka's command line tools, one after the other in one JVM. A line of standard input is
 * {"main": class, "arguments": […]}, its answer a line {"code": exit code, "out": …, "err": …} on standard output.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final class Exited extends RuntimeException {
        Exited() {
            super(null, null, false, false);
        }
    }

    /** The code of the running tool's first exit: some tools catch the Exited of it, report it and exit again. */
    private static Integer exitCode;

    private static void exit(int code) {
        if (exitCode == null) {
            exitCode = code;
            System.out.flush();
            System.err.flush();
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        }
        throw new Exited();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> exit(code));
        Exit.setHaltProcedure((code, message) -> exit(code));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = JSON.readTree(line);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(request.get("main").asText(), JSON.convertValue(request.get("arguments"), String[].class));
            System.out.flush();
            System.err.flush();
            Map<String, Object> answer = Map.of(
                    "code", code,
                    "out", out.toString(StandardCharsets.UTF_8),
                    "err", err.toString(StandardCharsets.UTF_8));
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static int run(String main, String[] arguments) throws Exception {
        exitCode = null;
        try {
            Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (exitCode == null) {
                error.getCause().printStackTrace(System.err);
                return 1;
            }
        }
        return exitCode == null ? 0 : exitCode;
    }
}
