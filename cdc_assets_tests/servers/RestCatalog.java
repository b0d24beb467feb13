import jakarta.servlet.Servlet;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.HTTPRequest;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.apache.iceberg.rest.RESTResponse;
import org.apache.iceberg.rest.Route;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * Iceberg's reference REST catalog over a JDBC catalog, with what its users meet elsewhere: warehouses that have a
 * name (`name=`), tokens (`token=`, or `credential=` for OAuth's client credentials, whose tokens end after
 * `token_seconds=`), and credentials for the tables' storage that come with each table (`vend.KEY=VALUE`, or as they
 * stand in the file `vended=` at that moment). Other arguments are properties of the JDBC catalog behind it.
 * Prints the port it listens at, then `asked` as a request comes, and the request with its status after its answer.
 */
public final class RestCatalog extends HttpServlet {
  private final Map given;
  private final Servlet served;

  private RestCatalog(Map given, Servlet served) {
    this.given = given;
    this.served = served;
  }

  protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
    System.out.println("asked");
    System.out.flush();
    try {
      answer(request, response);
    } catch (ServletException error) {
      throw new IOException(error);
    } finally {
      System.out.println(request.getMethod() + " " + request.getRequestURI() + " " + response.getStatus());
      System.out.flush();
    }
  }

  private void answer(HttpServletRequest request, HttpServletResponse response)
      throws IOException, ServletException {
    String uri = request.getRequestURI();
    String name = (String) given.get("name");
    String token = (String) given.get("token");
    if (uri.equals("/v1/oauth/tokens")) {
      String came = request.getParameter("client_id") + ":" + request.getParameter("client_secret");
      boolean right = came.equals(given.get("credential"));
      String life = given.containsKey("token_seconds") ? (String) given.get("token_seconds") : "3600";
      tell(response, right ? 200 : 401, right
          ? "{\"access_token\":\"" + issued(token, life) + "\",\"token_type\":\"bearer\",\"expires_in\":" + life + ","
              + "\"issued_token_type\":\"urn:ietf:params:oauth:token-type:access_token\"}"
          : "{\"error\":\"invalid_client\",\"error_description\":\"the client or its secret is wrong\"}");
    } else if (token != null && !accepted(token, request.getHeader("Authorization"))) {
      refuse(response, 401, "NotAuthorizedException", "Not authorized");
    } else if (name == null) {
      served.service(request, response);
    } else if (uri.equals("/v1/config")) {
      if (name.equals(request.getParameter("warehouse"))) {
        tell(response, 200, "{\"defaults\":{},\"overrides\":{\"prefix\":\"" + name + "\"}}");
      } else {
        refuse(response, 404, "NotFoundException", "Warehouse not found: " + request.getParameter("warehouse"));
      }
    } else if (uri.startsWith("/v1/" + name + "/")) {
      served.service(new Inner(request, "/v1" + uri.substring(4 + name.length())), response);
    } else {
      refuse(response, 404, "NotFoundException", "No such prefix: " + uri);
    }
  }

  /** A token that says when it ends, in milliseconds since 1970. */
  private static String issued(String token, String seconds) {
    return token + "-" + (System.currentTimeMillis() + 1000L * Long.parseLong(seconds));
  }

  private static boolean accepted(String token, String said) {
    String begins = "Bearer " + token;
    if (said == null || !said.startsWith(begins)) {
      return false;
    }
    String rest = said.substring(begins.length());
    return rest.isEmpty() || System.currentTimeMillis() < Long.parseLong(rest.substring(1));
  }

  private static void refuse(HttpServletResponse response, int code, String type, String why) throws IOException {
    tell(response, code,
        "{\"error\":{\"message\":\"" + why + "\",\"type\":\"" + type + "\",\"code\":" + code + "}}");
  }

  private static void tell(HttpServletResponse response, int code, String body) throws IOException {
    response.setStatus(code);
    response.setContentType("application/json");
    response.getWriter().write(body);
  }

  /** A request of a named warehouse as the catalog behind it knows it. */
  private static final class Inner extends HttpServletRequestWrapper {
    private final String uri;

    Inner(HttpServletRequest request, String uri) {
      super(request);
      this.uri = uri;
    }

    public String getRequestURI() {
      return uri;
    }
  }

  /** Gives the storage's credentials to who asks for a table as clients do that want them. */
  private static final class Vending extends RESTCatalogAdapter {
    private final Map vended;
    private final String file;

    Vending(Catalog catalog, Map vended, String file) {
      super(catalog);
      this.vended = vended;
      this.file = file;
    }

    private Map vended() {
      if (file == null) {
        return vended;
      }
      Properties now = new Properties();
      try {
        FileInputStream source = new FileInputStream(file);
        now.load(source);
        source.close();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
      return now;
    }

    public RESTResponse handleRequest(Route route, Map vars, HTTPRequest request, Class kind, Consumer headers) {
      RESTResponse said = super.handleRequest(route, vars, request, kind, headers);
      boolean asked = request.headers().contains("X-Iceberg-Access-Delegation");
      if (!(said instanceof LoadTableResponse) || !asked || vended().isEmpty()) {
        return said;
      }
      LoadTableResponse table = (LoadTableResponse) said;
      return LoadTableResponse.builder()
          .withTableMetadata(table.tableMetadata()).addAllConfig(table.config()).addAllConfig(vended()).build();
    }
  }

  public static void main(String[] arguments) throws Exception {
    Map given = new HashMap();
    Map vended = new HashMap();
    Map catalog = new HashMap();
    for (int i = 0; i < arguments.length; i++) {
      int at = arguments[i].indexOf('=');
      String key = arguments[i].substring(0, at);
      String value = arguments[i].substring(at + 1);
      if (key.startsWith("vend.")) {
        vended.put(key.substring(5), value);
      } else if (key.equals("name") || key.startsWith("token") || key.equals("credential")) {
        given.put(key, value);
      } else {
        catalog.put(key, value);
      }
    }
    String file = (String) catalog.remove("vended");
    Catalog behind = CatalogUtil.buildIcebergCatalog("behind", catalog, new org.apache.hadoop.conf.Configuration());
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(
        new ServletHolder(new RestCatalog(given, new RESTCatalogServlet(new Vending(behind, vended, file)))), "/*");
    server.setHandler(context);
    server.start();
    System.out.println("port " + connector.getLocalPort());
    System.out.flush();
    server.join();
  }
}
