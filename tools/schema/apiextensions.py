"""The Go types of ``apiextensions.k8s.io/v1``, which kubectl does not contain: protobuf numbers and pointers.

The numbers are those of ``pkg/apis/apiextensions/v1/generated.proto`` in k8s.io/apiextensions-apiserver (Apache-2.0); a
number never changes. Each type lists its fields by JSON name: ``name=number``, followed by ``*`` for a pointer.
"""

from __future__ import annotations

#: The prefix of the OpenAPI definitions of these types.
DEFINITIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
#: Types that JSON writes in more than one form.
VALUES = ("JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")

_TYPES = {
    "CustomResourceColumnDefinition": "name=1 type=2 format=3 description=4 priority=5 jsonPath=6",
    "CustomResourceConversion": "strategy=1 webhook=2*",
    "CustomResourceDefinition": "metadata=1 spec=2 status=3",
    "CustomResourceDefinitionCondition": "type=1 status=2 lastTransitionTime=3 reason=4 message=5 observedGeneration=6",
    "CustomResourceDefinitionNames": "plural=1 singular=2 shortNames=3 kind=4 listKind=5 categories=6",
    "CustomResourceDefinitionSpec": "group=1 names=3 scope=4 versions=7 conversion=9* preserveUnknownFields=10",
    "CustomResourceDefinitionStatus": "conditions=1 acceptedNames=2 storedVersions=3 observedGeneration=4",
    "CustomResourceDefinitionVersion": "name=1 served=2 storage=3 schema=4* subresources=5* additionalPrinterColumns=6"
    " deprecated=7 deprecationWarning=8* selectableFields=9",
    "CustomResourceSubresourceScale": "specReplicasPath=1 statusReplicasPath=2 labelSelectorPath=3*",
    "CustomResourceSubresourceStatus": "",
    "CustomResourceSubresources": "status=1* scale=2*",
    "CustomResourceValidation": "openAPIV3Schema=1*",
    "ExternalDocumentation": "description=1 url=2",
    "JSONSchemaProps": "id=1 $schema=2 $ref=3* description=4 type=5 format=6 title=7 default=8* maximum=9*"
    " exclusiveMaximum=10 minimum=11* exclusiveMinimum=12 maxLength=13* minLength=14* pattern=15 maxItems=16*"
    " minItems=17* uniqueItems=18 multipleOf=19* enum=20 maxProperties=21* minProperties=22* required=23 items=24*"
    " allOf=25 oneOf=26 anyOf=27 not=28* properties=29 additionalProperties=30* patternProperties=31 dependencies=32"
    " additionalItems=33* definitions=34 externalDocs=35* example=36* nullable=37"
    " x-kubernetes-preserve-unknown-fields=38* x-kubernetes-embedded-resource=39 x-kubernetes-int-or-string=40"
    " x-kubernetes-list-map-keys=41 x-kubernetes-list-type=42* x-kubernetes-map-type=43* x-kubernetes-validations=44",
    "SelectableField": "jsonPath=1",
    "ServiceReference": "namespace=1 name=2 path=3* port=4*",
    "ValidationRule": "rule=1 message=2 messageExpression=3 reason=4* fieldPath=5 optionalOldSelf=6*",
    "WebhookClientConfig": "service=1* caBundle=2 url=3*",
    "WebhookConversion": "clientConfig=2* conversionReviewVersions=3",
}


def go_fields(definition: str) -> dict[str, tuple[int, bool]] | None:
    """The protobuf number of each field by its JSON name, and whether it is a pointer; None for other groups' types."""
    text = _TYPES.get(definition.removeprefix(DEFINITIONS)) if definition.startswith(DEFINITIONS) else None
    return None if text is None else read_fields(text)


def read_fields(text: str) -> dict[str, tuple[int, bool]]:
    """The fields of a type in the notation of this module."""
    fields = (field.split("=") for field in text.split())
    return {name: (int(number.rstrip("*")), number.endswith("*")) for name, number in fields}
