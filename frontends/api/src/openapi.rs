//! The description of the interface, made from the list of operations.

#[allow(unused_imports, reason = "the list of operations names all of them")]
use tarn_administration::messages::{
    Changed, Done, Refusal, analytics, dataset, delegation, pool, statistics,
};
use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathItem, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ComponentsBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Content, InfoBuilder, OpenApi, OpenApiBuilder, RefOr, ResponseBuilder};
use utoipa::{PartialSchema, ToSchema};

/// Schemas by name, as they are collected.
type Schemas = Vec<(String, RefOr<Schema>)>;

macro_rules! describe {
    ($($path:literal $method:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
        /// The OpenAPI description of the whole interface.
        pub fn description() -> OpenApi {
            let mut paths = PathsBuilder::new();
            let mut schemas = Schemas::new();
            collect::<Refusal>(&mut schemas);
            $(paths = paths.path(
                concat!("/v1/", $path),
                operation::<$request, $reply>($path, $summary, &mut schemas),
            );)*
            let info = InfoBuilder::new()
                .title("Tarn control interface")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some("Served on the Unix socket of tarnd. Every operation is a POST."))
                .build();
            OpenApiBuilder::new()
                .info(info)
                .paths(paths.build())
                .components(Some(ComponentsBuilder::new().schemas_from_iter(schemas).build()))
                .build()
        }
    };
}

tarn_administration::for_each_operation!(describe);

/// Adds a type that has a name of its own, and what it refers to.
fn collect<T: ToSchema>(schemas: &mut Schemas) {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
}

/// One operation. Requests and replies stand in place, since two nouns may share a verb's name;
/// what they refer to is collected.
fn operation<Q: ToSchema, A: ToSchema>(
    path: &str,
    summary: &str,
    schemas: &mut Schemas,
) -> PathItem {
    Q::schemas(schemas);
    A::schemas(schemas);
    let envelope = ObjectBuilder::new()
        .property("command", ObjectBuilder::new().schema_type(Type::String))
        .property("stream", ObjectBuilder::new().schema_type(Type::String))
        .property("request", <Q as PartialSchema>::schema())
        .required("request");
    let json = |schema: RefOr<Schema>| Content::new(Some(schema));
    let body = RequestBodyBuilder::new()
        .content(
            "application/json",
            json(Schema::from(envelope.build()).into()),
        )
        .build();
    let reply = ResponseBuilder::new()
        .description("Done.")
        .content("application/json", json(<A as PartialSchema>::schema()))
        .build();
    let refusal = ResponseBuilder::new()
        .description("Refused, in OpenZFS's words.")
        .content(
            "application/json",
            json(<Refusal as PartialSchema>::schema()),
        )
        .build();
    let operation = OperationBuilder::new()
        .operation_id(Some(path.replace('/', "-")))
        .summary(Some(summary))
        .request_body(Some(body))
        .response("200", reply)
        .response("default", refusal);
    PathItem::new(HttpMethod::Post, operation)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference to a schema that is not in the description would make it useless to generators.
    #[test]
    fn every_reference_in_the_description_leads_somewhere() {
        let text = serde_json::to_string(&description()).unwrap();
        let described: serde_json::Value = serde_json::from_str(&text).unwrap();
        let schemas = described["components"]["schemas"].as_object().unwrap();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(
                schemas.contains_key(name),
                "{name} is referred to and not described"
            );
        }
        assert!(described["paths"]["/v1/pool/create"]["post"].is_object());
    }
}
